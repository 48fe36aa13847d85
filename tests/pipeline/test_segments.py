from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from queuecraft import failpoints
from queuecraft.drivers.base import Delivery, Outgoing
from queuecraft.model.errors import ConfigError
from queuecraft.pipeline.archive import archived
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.schemas import SEGMENTS
from queuecraft.pipeline.segments import SegmentWriter, new_place, sweep, write_segment
from queuecraft.testing.failpoints import Failed, failing
from tests.pipeline.segments import dies, files, ids


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.at(tmp_path / "lake")


def some(*names: str, **fields: Any) -> Any:
    return archived([Delivery(Outgoing(b"{}", each, **fields), "tap") for each in names], 5.0)


def test_a_segment_lies_in_the_folder_of_the_day_it_was_written(lake: Lake) -> None:
    before = datetime.now(UTC)
    path = write_segment(lake, some("m-1"))
    days = {f"date={each:%Y-%m-%d}" for each in (before, datetime.now(UTC))}
    assert path.parent.name in days
    assert path.parent.parent == lake.segments
    assert files(lake) == [path]


def test_names_are_unique_and_sort_by_time() -> None:
    early = {new_place("captured", 1_700_000_000.25).as_posix() for _ in range(100)}
    late = {new_place("captured", 1_700_000_000.5).as_posix() for _ in range(100)}
    assert len(early) == len(late) == 100
    assert max(early) < min(late)


def test_a_segment_has_the_columns_of_the_lake_and_says_their_version(lake: Lake) -> None:
    path = write_segment(lake, some("m-1"))
    schema = pq.read_schema(path)
    assert schema.remove_metadata() == SEGMENTS.arrow
    assert schema.metadata[b"queuecraft.version"] == b"1"
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    assert column.compression == "ZSTD"


def test_rows_stay_in_the_order_in_which_they_came(lake: Lake) -> None:
    with SegmentWriter(lake, new_place("rows")) as writer:
        writer.write(some("m-3", "m-1"))
        writer.write(some("m-2"))
    assert ids(lake) == ["m-3", "m-1", "m-2"]


def test_other_programs_can_read_it(lake: Lake) -> None:
    write_segment(lake, some("m-1", headers={"tenant": "t1", "pages": 2}))
    found = (
        duckdb.connect()
        .execute(
            f"SELECT message_id, headers['tenant'], typed_headers, payload, date "
            f"FROM read_parquet('{lake.segments}/*/*.parquet', hive_partitioning = true)"
        )
        .fetchall()
    )
    ((message_id, tenant, typed, payload, date),) = found
    assert (message_id, tenant, typed, payload) == ("m-1", "t1", '{"pages":2}', b"{}")
    assert f"date={date}" == files(lake)[0].parent.name


def test_a_writer_that_fails_leaves_nothing_behind(lake: Lake) -> None:
    def write_half() -> None:
        with SegmentWriter(lake, new_place("rows")) as writer:
            writer.write(some("m-1"))
            raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        write_half()
    assert list(lake.segments.rglob("*.parquet")) == []


def test_a_segment_that_cannot_be_published_leaves_nothing_behind(lake: Lake) -> None:
    with failing("segment.before_rename"), pytest.raises(Failed):
        write_segment(lake, some("m-1"))
    assert list(lake.segments.rglob("*.parquet")) == []


@pytest.mark.parametrize(
    ("point", "there"), [("segment.before_rename", False), ("segment.after_rename", True)]
)
def test_a_segment_is_there_whole_or_not_at_all(point: str, there: bool, lake: Lake) -> None:
    dies(
        point,
        "import sys\n"
        "from queuecraft.drivers.base import Delivery, Outgoing\n"
        "from queuecraft.pipeline.archive import archived\n"
        "from queuecraft.pipeline.lake import Lake\n"
        "from queuecraft.pipeline.segments import write_segment\n"
        "rows = archived([Delivery(Outgoing(b'', 'm-1'), 'tap')], 5.0)\n"
        "write_segment(Lake.at(sys.argv[1]), rows)\n",
        str(lake.root),
    )
    assert ids(lake) == (["m-1"] if there else [])


def test_what_the_dead_have_left_unfinished_is_swept_away_after_a_day(lake: Lake) -> None:
    kept = write_segment(lake, some("m-1"))
    old, young = (kept.with_name(f".{name}.parquet") for name in ("old", "young"))
    for path in (old, young):
        path.write_bytes(b"PAR1")
    long_ago = time.time() - 100_000
    for path in (old, kept):
        os.utime(path, (long_ago, long_ago))
    sweep(lake)
    assert not old.exists()
    assert young.exists()
    assert kept.exists()


def test_a_lake_without_arrow_says_what_to_install(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuecraft.pipeline.arrow.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'queuecraft\[spark\]'"):
        SegmentWriter(lake, new_place("rows"))


def test_a_segment_is_on_the_disk_before_it_has_its_name_and_its_name_before_it_counts(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    really = os.fsync

    def noted(number: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{number}"))
        really(number)

    monkeypatch.setattr(os, "fsync", noted)
    failpoints.arm("segment.before_rename", lambda: synced.append("renamed"))
    try:
        path = write_segment(lake, some("m-1"))
    finally:
        failpoints.disarm("segment.before_rename")
    made = [lake.root.parent, lake.root, lake.segments]  # where a folder was made
    assert synced == [
        *map(str, made),
        str(path.with_name(f".{path.name}")),
        "renamed",
        str(path.parent),
    ]
