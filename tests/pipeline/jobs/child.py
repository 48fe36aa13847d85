"""A job in a process of its own, which may die at any point of it.

    python -m tests.pipeline.jobs.child ingest|compact|expire PATH

Says `ready` when Spark has started, `done` when the job has ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from queuecraft.pipeline.jobs.compact import compact
from queuecraft.pipeline.jobs.expire import expire
from queuecraft.pipeline.jobs.ingest import ingest
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.session import spark_session
from tests.pipeline.small import SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]
NOW = datetime(2026, 3, 20, tzinfo=UTC)
OLD = 17.5 * 86_400


def expire_all(spark: SparkSession, lake: Lake) -> object:
    return expire(spark, lake, older_than=OLD, now=NOW)


JOBS: dict[str, Callable[[SparkSession, Lake], object]] = {
    "ingest": ingest,
    "compact": partial(compact, fewest=2),
    "expire": expire_all,
}


@contextmanager
def job(name: str, lake: Lake, failpoint: str | None = None) -> Generator[subprocess.Popen[str]]:
    """The process; it and all it has started are gone when the block ends."""
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    settings.pop("QUEUECRAFT_FAILPOINT", None)
    if failpoint is not None:
        settings["QUEUECRAFT_FAILPOINT"] = failpoint
    command = [sys.executable, "-m", "tests.pipeline.jobs.child", name, str(lake.root)]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            # Java ends by itself when Python does, a little later: nobody must work beside it.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            _gone(process.pid)


def _gone(group: int) -> None:
    """Wait until nobody of a process group is left who could still do something."""
    while True:
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, its_group, *_ = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(its_group) == group and state != "Z":
                os.sched_yield()
                break
        else:
            return


def main(name: str, place: str) -> None:
    settings: dict[str, Any] = {
        **SETTINGS,
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.log.level": "ERROR",
    }
    spark = spark_session(name="child", settings=settings)
    print("ready", flush=True)
    JOBS[name](spark, Lake.at(place))
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
