"""What is old goes, what is young stays."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from queuecraft.model.errors import ConfigError
from queuecraft.pipeline.horizon import horizon
from queuecraft.pipeline.jobs.expire import expire
from queuecraft.pipeline.jobs.ingest import ingest
from queuecraft.pipeline.jobs.passed import passed_segments
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.schemas import DEAD_LETTERS, EVENTS, GROWTH, MESSAGES, THROUGHPUT
from queuecraft.testing.failpoints import Failed, failing
from tests.pipeline.rows import (
    at,
    business,
    delivered,
    in_segments,
    published,
    table_rows,
    write_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(180)  # on a busy machine Spark takes its time

DAY = 86_400.0
NOW = at(hours=24 * 40)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    """One message that is long dead, one that was born then and handled lately, one that is new."""
    lake = Lake.at(tmp_path)
    failed = {"error_type": "KeyError", "error": "no"}
    lately = NOW - timedelta(days=2)
    write_rows(lake, [published("old"), delivered("old", at(5), "dead-lettered", **failed)])
    write_rows(lake, [published("delayed", at(hours=1), due_at=lately)], name="b")
    write_rows(
        lake,
        [
            delivered("delayed", lately, published_at=at(hours=1), due_at=lately),
            published("new", lately),
            delivered("new", lately, "dead-lettered", published_at=lately, **failed),
        ],
        name="c",
        date=f"{lately:%Y-%m-%d}",
    )
    ingest(spark, lake)
    return lake


def ids(lake: Lake) -> set[str]:
    return {row["message_id"] for row in table_rows(lake, EVENTS)}


def test_what_is_old_goes(spark: SparkSession, lake: Lake) -> None:
    write_rows(lake, [published("not ingested")], name="late")

    planned = expire(None, lake, older_than=30 * DAY, dry_run=True, now=NOW)
    assert (planned.segments, planned.kept) == (2, 1)
    assert planned.partitions["messages"] == 1
    assert ids(lake) == {"old", "delayed", "new"}

    assert expire(spark, lake, older_than=30 * DAY, now=NOW) == planned
    assert ids(lake) == {"delayed", "new"}
    assert {row["message_id"] for row in table_rows(lake, MESSAGES)} == {"delayed", "new"}
    assert all(row["minute"] > at(hours=24) for row in table_rows(lake, THROUGHPUT))
    assert all(row["minute"] > at(hours=24) for row in table_rows(lake, GROWTH))
    (group,) = table_rows(lake, DEAD_LETTERS)
    assert (group["count"], group["message_ids"]) == (1, ["new"])
    names = sorted(path.name for path in lake.segments.glob("*/*"))
    assert names == ["c.parquet", "late.parquet"]

    again = expire(spark, lake, older_than=30 * DAY, now=NOW)
    assert (again.segments, again.partitions, again.size) == (0, {}, 0)
    assert ingest(spark, lake).rows == 1
    assert "not ingested" in ids(lake)


def test_how_far_back_the_lake_reaches_is_written_down_before_anything_goes(
    spark: SparkSession, lake: Lake
) -> None:
    before = {path: path.stat().st_size for path in lake.root.rglob("*") if path.is_file()}
    expire(None, lake, older_than=30 * DAY, dry_run=True, now=NOW)
    expire(spark, lake, older_than=30 * DAY, dry_run=True, now=NOW)
    expire(spark, lake, older_than=60 * DAY, now=NOW)  # nothing is as old as that
    assert {path: path.stat().st_size for path in lake.root.rglob("*") if path.is_file()} == before
    assert horizon(lake) is None

    with failing("expire.before_forgetting"), pytest.raises(Failed):
        expire(spark, lake, older_than=30 * DAY, now=NOW)
    assert horizon(lake) == NOW - timedelta(days=30)
    assert all(path.exists() for path in before)

    expire(spark, lake, older_than=35 * DAY, now=NOW)
    assert ids(lake) == {"delayed", "new"}
    assert horizon(lake) == NOW - timedelta(days=30), "it does not come back"


def test_what_another_stream_has_read_and_ingest_has_not_stays(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    names = [path.name for path in in_segments(lake, business(10), 5)]
    read = lake.checkpoints / "fraud" / "sources" / "0" / "0"
    done = lake.checkpoints / "fraud" / "commits" / "0"
    for place in (read, done):
        place.parent.mkdir(parents=True)
    lines = [json.dumps({"path": f"file:///{name}", "batchId": 0}) for name in names]
    read.write_text("\n".join(["v1", *lines]))
    done.touch()

    assert passed_segments(lake) == set()
    planned = expire(None, lake, older_than=30 * DAY, dry_run=True, now=NOW)
    assert (planned.segments, planned.kept) == (0, 5)


def test_a_mistake_removes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="younger than an hour"):
        expire(spark, Lake.at(tmp_path), older_than=0)
    with pytest.raises(ConfigError, match="without Spark"):
        expire(None, Lake.at(tmp_path), older_than=DAY)
