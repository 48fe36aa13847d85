"""A program that executes a replay, or without an ID plans one, and is killed: LAKE ID FAILPOINT
PASSES RATE."""

from __future__ import annotations

import sys
from contextlib import nullcontext

from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.replay.execution import execute
from queuecraft.pipeline.replay.planning import plan
from queuecraft.pipeline.replay.question import Question
from queuecraft.pipeline.session import spark_session
from queuecraft.testing.failpoints import killed_at


def main(lake: str, replay_id: str, doom: str, passes: str, rate: str) -> None:
    spark = spark_session(
        settings={
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.shuffle.partitions": "2",
        }
    )
    with killed_at(doom, skip=int(passes)) if doom else nullcontext():
        if replay_id:
            execute(spark, Lake.at(lake), replay_id, rate=float(rate) if rate else None, settle=0.1)
        else:
            plan(spark, Lake.at(lake), Question(to="billing"))


if __name__ == "__main__":
    main(*sys.argv[1:])
