"""The pipeline through a Spark Connect server, as a user runs it there."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.pipeline.cluster.connect import connect_server
from tests.pipeline.cluster.standalone import Cluster, run
from tests.pipeline.cluster.twins import ingested_here, same_tables, small_lake
from tests.pipeline.replay.scene import archive, captured
from tests.pipeline.source.queues import declared, waiting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.faults, pytest.mark.timeout(400)]

SEND: Final = """
import sys

from queuecraft.model.errors import ConfigError
from queuecraft.pipeline import register
from queuecraft.pipeline.session import spark_session

spark = spark_session(remote=sys.argv[1])
register(spark)
orders = spark.range(20).selectExpr("id as n")
place = {"connection": "shop", "queue": "billing"}
orders.write.format("queuecraft").options(**place).mode("append").save()
print("waiting", spark.read.format("queuecraft").options(**place).load().count())
assert spark_session() is spark
try:
    spark_session(master="local[1]")
except ConfigError as error:
    print(error.message)
"""


@pytest.fixture(scope="module")
def server(cluster: Cluster) -> Generator[str]:
    with connect_server(cluster) as url:
        yield url


def test_an_ingest_and_a_report_tell_the_same_as_here(
    server: str, spark: SparkSession, tmp_path: Path
) -> None:
    lake, rows = small_lake(tmp_path / "lake")
    twin = ingested_here(spark, tmp_path / "twin")
    command = (sys.executable, "-m", "queuecraft")
    told = run(
        *(*command, "lake", "ingest", str(lake.root), "--once", "--remote", server), folder=tmp_path
    )
    assert told.returncode == 0, told.stderr[-4000:]
    assert f"Ingested {len(rows)} rows from 2 segments" in told.stdout
    same_tables(lake, twin)
    report = (*command, "report", "--no-ingest", "--json")
    there = run(*report, "lake", "--remote", server, folder=tmp_path)
    here = run(*report, "twin", folder=tmp_path)
    assert (there.returncode, there.stderr) == (0, "")
    assert _figures(there.stdout) == _figures(here.stdout)
    assert _figures(there.stdout)["counts"]["delivered"]
    assert (lake.root / "report.html").exists()


def test_executors_behind_a_server_write_to_a_queue(
    server: str, shop: Callable[[str], None], redis_url: str, tmp_path: Path
) -> None:
    url = f"{redis_url}&mode=list"
    declared(url, "billing")
    shop(url)
    told = run(sys.executable, "-c", SEND, server, folder=tmp_path)
    assert told.returncode == 0, told.stderr[-4000:]
    sent, *others = told.stdout.splitlines()
    assert sent == "waiting 20"
    assert "has a session on a Spark Connect server already" in others[0]
    assert sorted(each.payload["n"] for each in waiting(url, "billing")) == list(range(20))


def test_a_replay_is_sent_by_executors_behind_a_server(
    server: str, shop: Callable[[str], None], shop_file: Path, redis_url: str, tmp_path: Path
) -> None:
    url = f"{redis_url}&mode=list"
    declared(url, "billing")
    shop(url)
    archive(tmp_path / "lake", [captured(n, key=f"k-{n % 3}") for n in range(60)])
    asked = ("--to", "billing", "--connection", "shop", "--canary", "10", "--chunk", "20")
    told = run(
        *("env", f"QUEUECRAFT_CONNECTION_SHOP_CONFIG={shop_file}"),
        *(sys.executable, "-m", "queuecraft", "lake", "replay", str(tmp_path / "lake"), *asked),
        *("--no-ingest", "--yes", "--remote", server),
        folder=tmp_path,
    )
    assert told.returncode == 0, told.stderr[-4000:]
    found = waiting(url, "billing")
    assert sorted(each.payload["n"] for each in found) == list(range(60))
    for key in ("k-0", "k-1", "k-2"):
        numbers = [each.payload["n"] for each in found if each.key == key]
        assert numbers == sorted(numbers)


def test_a_lake_that_the_server_does_not_have_is_told_in_a_sentence(
    server: str, tmp_path: Path
) -> None:
    small_lake(tmp_path / "lake")
    # Each process has a folder of its own there.
    command = ("lake", "ingest", "/proc/self/cwd/lake", "--once", "--remote", server)
    told = run(sys.executable, "-m", "queuecraft", *command, folder=tmp_path)
    assert told.returncode == 1
    (line,) = told.stderr.splitlines()
    assert "Path does not exist: /proc/self/cwd/lake/segments" in line


def _figures(printed: str) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(printed)
    del figures["page"]
    return figures
