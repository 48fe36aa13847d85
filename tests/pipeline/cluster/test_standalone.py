"""The pipeline on a cluster, as a user runs it there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.docs.blocks import changed, left_to
from tests.pipeline.cluster.daemon import HOME
from tests.pipeline.cluster.standalone import Cluster, run
from tests.pipeline.cluster.twins import ingested_here, same_tables, small_lake
from tests.pipeline.replay.scene import archive, captured
from tests.pipeline.source.queues import declared, waiting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUBMIT: Final = str(HOME / "bin" / "spark-submit")

SEND: Final = """
from queuecraft.pipeline import register
from queuecraft.pipeline.session import spark_session

spark = spark_session()
register(spark)
orders = spark.range(20).selectExpr("id as n").repartition(2)
place = {"connection": "shop", "queue": "billing"}
orders.write.format("queuecraft").options(**place).mode("append").save()
print("on", spark.sparkContext.master)
"""

REPLAY: Final = """
import sys

from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.replay.execution import execute
from queuecraft.pipeline.replay.planning import plan
from queuecraft.pipeline.replay.question import Question
from queuecraft.pipeline.session import spark_session

spark, lake = spark_session(), Lake.at("lake")
_, to, place = sys.argv
print(execute(spark, lake, plan(spark, lake, Question(to="billing")).id, **{to: place}))
"""


@pytest.mark.faults
@pytest.mark.timeout(180)
def test_executors_write_to_a_queue_that_only_they_know_the_way_to(
    cluster: Cluster, shop: Callable[[str], None], redis_url: str, tmp_path: Path
) -> None:
    url = f"{redis_url}&mode=list"
    declared(url, "billing")
    shop(url)
    (tmp_path / "job.py").write_text(SEND)
    told = run(SUBMIT, "--master", cluster.url, "job.py", folder=tmp_path)
    assert f"on {cluster.url}" in told.stdout, told.stderr[-4000:]
    assert sorted(each.payload["n"] for each in waiting(url, "billing")) == list(range(20))


@pytest.mark.faults
@pytest.mark.timeout(400)
def test_a_submitted_job_makes_the_tables_that_are_made_here(
    cluster: Cluster,
    shop: Callable[[str], None],
    redis_url: str,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    url = f"{redis_url}&mode=stream"
    declared(url, "billing")
    shop(url)
    lake, rows = small_lake(tmp_path / "lake")
    retried = [row["message_id"] for row in rows if row.get("outcome") == "retried"]
    (job,) = left_to(__file__, "docs/spark.md")
    (tmp_path / "job.py").write_text(changed(job, {"/mnt/lake": str(lake.root)}).code)
    told = run(SUBMIT, "--master", cluster.url, "job.py", folder=tmp_path)
    assert told.returncode == 0, told.stderr[-4000:]
    assert sorted(each.id for each in waiting(url, "billing")) == sorted(retried)
    same_tables(lake, ingested_here(spark, tmp_path / "twin"))


@pytest.mark.faults
@pytest.mark.timeout(400)
def test_the_command_makes_the_tables_that_are_made_here(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    lake, rows = small_lake(tmp_path / "lake")
    command = ("lake", "ingest", "lake", "--once", "--master", cluster.url)
    told = run(sys.executable, "-m", "queuecraft", *command, folder=tmp_path)
    assert f"Ingested {len(rows)} rows from 2 segments of lake" in told.stdout, told.stderr[-4000:]
    assert told.stderr == ""
    same_tables(lake, ingested_here(spark, tmp_path / "twin"))
    again = run(sys.executable, "-m", "queuecraft", *command, folder=tmp_path)
    assert again.stdout == "Nothing is new in lake.\n"


@pytest.mark.faults
@pytest.mark.timeout(180)
def test_a_connection_that_executors_do_not_know_is_told(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(SEND.replace('"shop"', '"market"'))
    told = run(SUBMIT, "--master", cluster.url, "job.py", folder=tmp_path)
    assert told.returncode != 0
    assert "connection 'market' is not known here" in told.stderr


@pytest.mark.faults
@pytest.mark.timeout(180)
def test_a_replay_to_a_url_that_executors_would_not_know_is_refused(
    cluster: Cluster, redis_url: str, tmp_path: Path
) -> None:
    url = f"{redis_url}&mode=list"
    declared(url, "billing")
    archive(tmp_path / "lake", [captured(1)])
    (tmp_path / "job.py").write_text(REPLAY)
    told = run(SUBMIT, "--master", cluster.url, "job.py", "url", url, folder=tmp_path)
    assert told.returncode != 0
    assert "the url of a replay stays on this machine" in told.stdout, told.stderr[-4000:]
    assert waiting(url, "billing") == []


@pytest.mark.faults
@pytest.mark.timeout(180)
def test_a_replay_is_refused_where_tasks_are_started_twice(
    cluster: Cluster, shop: Callable[[str], None], shop_file: Path, redis_url: str, tmp_path: Path
) -> None:
    url = f"{redis_url}&mode=list"
    declared(url, "billing")
    shop(url)
    archive(tmp_path / "lake", [captured(1)])
    (tmp_path / "job.py").write_text(REPLAY)
    told = run(
        *("env", f"QUEUECRAFT_CONNECTION_SHOP_CONFIG={shop_file}"),
        *(SUBMIT, "--master", cluster.url, "job.py", "connection", "shop"),
        folder=tmp_path,
        settings={"spark.speculation": "true"},
    )
    assert told.returncode != 0
    assert "with spark.speculation" in told.stdout, told.stderr[-4000:]
    assert waiting(url, "billing") == []
