"""The source through a Spark Connect server, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.source.queues import declared, waiting

PROGRAM = """
import sys
from queuecraft.pipeline import register
from queuecraft.pipeline.session import spark_session

folder = sys.argv[1]
spark = spark_session(remote="local[2]")
register(spark)
place = {"connection": "shop", "queue": "billing"}
numbers = spark.range(10).selectExpr("id as n")
numbers.write.format("queuecraft").options(**place).mode("append").save()
rows = spark.readStream.schema("n bigint").json(folder + "/in").writeStream.format("queuecraft")
rows = rows.options(**place).option("checkpointLocation", folder + "/checkpoint")
rows.trigger(availableNow=True).start().awaitTermination()
print("read", spark.read.format("queuecraft").options(**place).load().count())
spark.stop()
"""


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_queues_are_read_and_written_through_spark_connect(tmp_path: Path) -> None:
    url = f"local://{tmp_path}/queue.db"
    declared(url, "billing")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one.json").write_text('{"n": 10}\n{"n": 11}\n')
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env=os.environ | {"QUEUECRAFT_CONNECTION_SHOP_URL": url, "PYSPARK_PYTHON": sys.executable},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "read 12" in told.stdout, told.stderr[-3000:]
    assert sorted(each.payload["n"] for each in waiting(url, "billing")) == list(range(12))
