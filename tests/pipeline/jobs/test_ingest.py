"""From segments to tables: each row once, bad ones aside, and only what is new."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest

from queuecraft.failpoints import arm, disarm
from queuecraft.model.errors import ConfigError, QueueError
from queuecraft.observers.journal.row import Row
from queuecraft.pipeline.jobs.alone import alone
from queuecraft.pipeline.jobs.ingest import Step, ingest
from queuecraft.pipeline.jobs.torn import put_torn_aside
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.schemas import (
    DEAD_LETTERS,
    EVENTS,
    GROWTH,
    LIFECYCLE,
    MESSAGES,
    QUARANTINE,
    TABLES,
    THROUGHPUT,
)
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


def snapshot(lake: Lake) -> Mapping[str, list[dict[str, Any]]]:
    return {table.name: table_rows(lake, table) for table in TABLES}


@pytest.mark.faults  # for the time it takes
def test_parts_at_different_times_give_the_same_tables_as_the_whole_at_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = business(60)
    whole, parts = Lake.at(tmp_path / "whole"), Lake.at(tmp_path / "parts")
    in_segments(whole, rows, 6)
    done = ingest(spark, whole)
    assert (done.segments, done.rows, done.torn, done.quarantined) == (6, len(rows), 0, 0)

    files = in_segments(parts, rows, 6)
    waiting = {path: path.rename(path.with_name(f".{path.name}")) for path in files}
    for number, (path, hidden) in enumerate(waiting.items()):
        hidden.rename(path)
        if number in (2, 5):
            assert ingest(spark, parts).rows > 0
    assert snapshot(parts) == snapshot(whole)

    again = ingest(spark, whole)
    assert (again.segments, again.rows, again.hours) == (0, 0, 0)


def test_a_dirty_lake_is_ingested_with_the_bad_in_quarantine(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake.at(tmp_path)
    good = [published("m-1"), delivered("m-1")]
    write_rows(lake, good, name="good")
    write_rows(
        lake,
        [
            published("newer", version=99),
            published("xml", content_type="application/json", payload=b"<xml/>"),
            {**published("nameless"), "message_id": None},
            published("stone age", at(hours=-1_000_000)),
            delivered("backwards", at(-3600)),
            *good,
        ],
        name="mixed",
    )
    whole = write_rows(lake, business(100), name="cut off")
    os.truncate(whole, whole.stat().st_size // 2)
    (whole.parent / "empty.parquet").touch()
    (whole.parent / "foreign.parquet").write_bytes(b"PAR1, he said" * 100)
    (whole.parent / ".hidden.parquet").write_bytes(b"not complete")
    broken = write_rows(lake, business(300), name="rotten")
    content = bytearray(broken.read_bytes())
    content[200 : len(content) // 2] = bytes(len(content) // 2 - 200)  # the footer is whole
    broken.write_bytes(content)

    done = ingest(spark, lake)

    assert (done.segments, done.torn, done.quarantined) == (6, 4, 8)
    problems = [(row["problem"], row["segment"]) for row in table_rows(lake, QUARANTINE)]
    folder = "date=2026-03-02"
    assert sorted(problems) == [
        ("impossible time", f"{folder}/mixed.parquet"),
        ("no message id", f"{folder}/mixed.parquet"),
        ("payload is not JSON", f"{folder}/mixed.parquet"),
        ("unknown version", f"{folder}/mixed.parquet"),
        *(
            ("unreadable segment", f"{folder}/{name}.parquet")
            for name in ("cut%20off", "empty", "foreign", "rotten")
        ),
    ]
    assert {row["message_id"] for row in table_rows(lake, EVENTS)} == {"m-1", "backwards"}
    lives = {row["message_id"]: row for row in table_rows(lake, LIFECYCLE)}
    assert (lives["backwards"]["latency"], lives["m-1"]["latency"]) == (None, 2.0)
    torn = sorted(path.name for path in whole.parent.glob(".*.torn"))
    assert torn == [f".{name}.parquet.torn" for name in ("cut off", "empty", "foreign", "rotten")]
    assert ingest(spark, lake).rows == 0


@pytest.mark.parametrize(
    "trouble",
    [OSError(errno.EMFILE, "too many open files"), pa.ArrowMemoryError("malloc failed")],
    ids=["files", "memory"],
)
def test_a_segment_is_not_torn_because_the_machine_cannot_read_it_now(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trouble: Exception
) -> None:
    segment = write_rows(Lake.at(tmp_path), [published("m-1")])
    before = segment.read_bytes()

    def refuse(path: Path) -> None:
        raise trouble

    monkeypatch.setattr("pyarrow.parquet.ParquetFile", refuse)
    with pytest.raises(QueueError, match=r"a\.parquet cannot be read now: .*(open files|malloc)"):
        put_torn_aside([segment])
    assert segment.read_bytes() == before
    assert list(segment.parent.iterdir()) == [segment]


def test_the_spools_of_the_journal_are_taken_along(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    lake.spool.mkdir()
    now = at().timestamp()
    line = msgspec.json.encode(
        Row(kind="published", at=now, message_id="m-1", published_at=now, event="order.placed")
    )
    (lake.spool / "a.jsonl").write_bytes(line + b"\nnot a line\n")
    steps: list[Step] = []
    done = ingest(spark, lake, progress=steps.append)
    assert (done.segments, done.rows) == (1, 2)
    assert {row["problem"] for row in table_rows(lake, QUARANTINE)} == {"late", "unreadable line"}
    assert steps[-1] == Step("making tables", 2, 2)
    assert {step.what for step in steps} >= {"converting the journal", "reading segments"}


@pytest.mark.faults  # for the time it takes
def test_a_late_duplicate_moves_what_was_counted(spark: SparkSession, tmp_path: Path) -> None:
    """The newest of two counts, also in tables of an hour that the new row is not in."""
    lake = Lake.at(tmp_path)
    first = delivered("m-1", at(5), "dead-lettered", error_type="KeyError", error="no")
    write_rows(lake, [published("m-1"), first], name="a")
    ingest(spark, lake)
    (before,) = [row for row in table_rows(lake, THROUGHPUT) if row["delivered"]]
    assert (before["minute"], before["dead_lettered"]) == (at(), 1)
    assert len(table_rows(lake, DEAD_LETTERS)) == 1

    write_rows(lake, [delivered("m-1", at(hours=5), due_at=at(hours=5))], name="b")
    ingest(spark, lake)
    (after,) = [row for row in table_rows(lake, THROUGHPUT) if row["delivered"]]
    assert (after["minute"], after["succeeded"], after["dead_lettered"]) == (at(hours=5), 1, 0)
    assert table_rows(lake, DEAD_LETTERS) == []
    (life,) = table_rows(lake, LIFECYCLE)
    assert (life["outcome"], life["deliveries"]) == ("succeeded", 1)
    left = {row["minute"]: row["left"] for row in table_rows(lake, GROWTH)}
    assert left == {at(): 0, at(hours=5): 1}


@pytest.mark.parametrize(
    "segments",
    [
        pytest.param(100, marks=pytest.mark.faults),
        pytest.param(10_000, marks=[pytest.mark.faults, pytest.mark.timeout(900)]),
    ],
)
def test_many_tiny_segments_are_no_trouble(
    spark: SparkSession, tmp_path: Path, segments: int
) -> None:
    lake = Lake.at(tmp_path)
    rows = business(segments)[:segments]
    in_segments(lake, rows, len(rows))
    done = ingest(spark, lake)
    assert (done.segments, done.rows) == (segments, segments)
    assert len(table_rows(lake, MESSAGES)) == segments


def test_two_segments_of_one_name_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    for date in ("2026-03-02", "2026-03-03"):
        write_rows(lake, [published("m-1")], date=date)
    with pytest.raises(QueueError, match=r"more than one segment 'a\.parquet'"):
        ingest(spark, lake)


@pytest.mark.faults
def test_what_stops_spark_is_told(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    write_rows(lake, [published("m-1")])

    def full() -> None:
        raise OSError(28, "No space left on device")

    arm("ingest.before_batch", full)
    try:
        with pytest.raises(QueueError, match=r"No space left on device.*Nothing is lost"):
            ingest(spark, lake)
    finally:
        disarm("ingest.before_batch")
    assert ingest(spark, lake).rows == 1


def test_without_a_lake_it_says_so(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no lake at"):
        ingest(spark, Lake.at(tmp_path / "nowhere"))


def test_an_empty_lake_is_a_lake(spark: SparkSession, tmp_path: Path) -> None:
    assert ingest(spark, Lake.at(tmp_path)).rows == 0


def test_one_job_works_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    with alone(lake), pytest.raises(QueueError, match="another job is at work"):
        ingest(spark, lake)
