from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
)
from pyspark.testing import assertDataFrameEqual

from queuecraft.model.envelope import Delivery, Outgoing
from queuecraft.model.errors import ConfigError, QueueError
from queuecraft.pipeline.archive import archived
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.schemas import SEGMENTS
from queuecraft.pipeline.segments import write_segment
from queuecraft.pipeline.source import lake as lakes
from queuecraft.pipeline.source.filters import expression
from queuecraft.pipeline.source.lake import FilteringLakeReader, LakeReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = ("message_id", "kind", "at")


def rows(*ids: str, at: float = 1.5) -> pa.RecordBatch:
    return archived(
        [
            Delivery(
                Outgoing(b'{"n": 1}', id, "events", "order.placed", headers={"tenant": "t1"}), "tap"
            )
            for id in ids
        ],
        at,
    )


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.at(tmp_path / "lake")


def read(reader: LakeReader) -> list[str]:
    return [
        id
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for id in batch.column("message_id").to_pylist()
    ]


def test_a_lake_is_a_table_of_all_its_segments(source: SparkSession, lake: Lake) -> None:
    write_segment(lake, rows("m-1", "m-2"))
    write_segment(lake, rows("m-3", at=1_800_000_000))
    table = source.read.format("queuecraft").option("lake", str(lake.root)).load()
    assert table.schema == SEGMENTS.spark
    files = source.read.schema(SEGMENTS.spark).parquet(str(lake.segments))
    assertDataFrameEqual(table, files.drop("date"))
    late = table.where("kind = 'captured' and at > '2026-01-01'").select("message_id", "headers")
    assert [row.asDict() for row in late.collect()] == [
        {"message_id": "m-3", "headers": {"tenant": "t1"}}
    ]


def test_only_the_columns_that_are_asked_for_are_read(source: SparkSession, lake: Lake) -> None:
    write_segment(lake, rows("m-1"))
    reader = source.read.format("queuecraft").schema("size bigint, message_id string")
    assert [tuple(row) for row in reader.load(str(lake.root)).collect()] == [(8, "m-1")]
    with pytest.raises(PySparkException, match="there is no column 'sise bigint'; known: kind"):
        source.read.format("queuecraft").schema("sise bigint").load(str(lake.root)).collect()


def test_a_torn_segment_is_an_error_that_names_it(source: SparkSession, lake: Lake) -> None:
    path = write_segment(lake, rows("m-1"))
    path.write_bytes(path.read_bytes()[:-20])
    table = source.read.format("queuecraft").option("lake", str(lake.root)).load()
    with pytest.raises(PySparkException, match=f"segment .*{path.name} cannot be read"):
        table.collect()


def test_what_is_being_written_is_not_read(lake: Lake) -> None:
    path = write_segment(lake, rows("m-1"))
    path.with_name(f".{path.name}").write_bytes(b"half of it")
    (lake.segments / "_SUCCESS").write_bytes(b"")
    assert read(LakeReader(str(lake.root), COLUMNS)) == ["m-1"]


def test_a_lake_without_segments_is_empty_and_no_lake_is_an_error(tmp_path: Path) -> None:
    assert read(LakeReader(str(tmp_path), COLUMNS)) == []
    with pytest.raises(ConfigError, match="there is no lake in"):
        LakeReader(str(tmp_path / "lakee"), COLUMNS).partitions()


def test_a_lake_may_be_named_by_the_uri_of_its_file_system(lake: Lake) -> None:
    write_segment(lake, rows("m-1"))
    assert read(LakeReader(f"file://{lake.root}", COLUMNS)) == ["m-1"]
    with pytest.raises(ConfigError, match="cannot be opened"):
        LakeReader("carrier-pigeon://roof/lake", COLUMNS).partitions()


def test_small_files_share_a_task_and_a_large_one_is_divided(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(4):
        write_segment(lake, rows(f"m-{n}"))
    reader = LakeReader(str(lake.root), COLUMNS)
    assert len(reader.partitions()) == 1
    size = next(lake.segments.rglob("*.parquet")).stat().st_size
    monkeypatch.setattr(lakes, "OPENING", 100)
    monkeypatch.setattr(lakes, "SHARE", 2 * (size + 100) + 1)
    assert len(reader.partitions()) == 2
    path = lake.segments / "date=2026-01-01" / "large.parquet"
    path.parent.mkdir(exist_ok=True)
    with pq.ParquetWriter(str(path), SEGMENTS.arrow) as writer:
        for n in range(3):
            writer.write_batch(rows(f"large-{n}"))
    monkeypatch.setattr(lakes, "SHARE", path.stat().st_size // 4)
    assert sorted(read(reader)) == ["large-0", "large-1", "large-2", "m-0", "m-1", "m-2", "m-3"]
    assert max(len(each.value) for each in reader.partitions()) < 4
    path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(QueueError, match=r"segment .*large\.parquet cannot be read"):
        reader.partitions()


def test_a_segment_of_another_version_has_nulls_for_what_it_lacks(lake: Lake) -> None:
    old = pa.table({"message_id": ["m-1"], "kind": ["captured"], "newer": [1]})
    path = lake.segments / "date=2026-01-01" / "old.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(old, path)
    reader = LakeReader(str(lake.root), COLUMNS)
    (batch,) = reader.read(reader.partitions()[0])
    assert batch.to_pylist() == [{"message_id": "m-1", "kind": "captured", "at": None}]


def test_filters_leave_rows_unread_and_are_left_to_spark(lake: Lake) -> None:
    write_segment(lake, rows("m-1", "m-2"))
    write_segment(lake, rows("m-3", at=1_800_000_000))
    reader = FilteringLakeReader(str(lake.root), COLUMNS)
    given = [GreaterThan(("at",), datetime(2026, 1, 1, tzinfo=UTC)), In(("kind",), ("captured",))]
    assert list(reader.pushFilters(list(given))) == given
    assert read(reader) == ["m-3"]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (EqualTo(("size",), 2), [2]),
        (GreaterThan(("size",), 2), [3]),
        (GreaterThanOrEqual(("size",), 2), [2, 3]),
        (LessThan(("size",), 2), [1]),
        (LessThanOrEqual(("size",), 2), [1, 2]),
        (In(("size",), (1, 3)), [1, 3]),
    ],
)
def test_comparisons_mean_to_arrow_what_they_mean_to_spark(given: Filter, found: list[int]) -> None:
    table = pa.table({"size": pa.array([1, 2, 3, None], pa.int64())})
    assert table.filter(expression([given], SEGMENTS.arrow))["size"].to_pylist() == found


def test_what_arrow_cannot_look_for_is_not_asked_of_it() -> None:
    filters = [
        Not(EqualTo(("kind",), "captured")),
        StringContains(("kind",), "cap"),
        IsNull(("kind",)),
        EqualTo(("headers",), {"a": "b"}),
        EqualTo(("headers", "a"), "b"),
        EqualTo(("size",), "many"),
        EqualTo(("date",), "2026-01-01"),
    ]
    assert expression(filters, SEGMENTS.arrow) is None
