"""Few large files for many small ones, and nothing else changes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from queuecraft.model.errors import QueueError
from queuecraft.pipeline.jobs.alone import alone
from queuecraft.pipeline.jobs.compact import Compacted, compact
from queuecraft.pipeline.jobs.expire import expire
from queuecraft.pipeline.jobs.ingest import ingest, new_segments
from queuecraft.pipeline.jobs.stream import checkpoint
from queuecraft.pipeline.jobs.swap import finish_swaps, staging, swap
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.schemas import LIFECYCLE, MESSAGES, SEGMENTS, TABLES
from tests.pipeline.rows import at, business, in_segments, segment_rows, table_rows, write_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(180)  # on a busy machine Spark takes its time


def segments(lake: Lake) -> list[Path]:
    return sorted(lake.segments.glob("date=*/*.parquet"))


@pytest.mark.faults  # for the time it takes
def test_small_files_are_put_together_and_not_ingested_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake.at(tmp_path)
    rows = business(60)
    in_segments(lake, rows[::2], 6)
    ingest(spark, lake)
    write_rows(lake, rows[1::2], name="later")
    ingest(spark, lake)
    write_rows(lake, business(5, seed=9), name="new")  # nobody has read it yet
    before = {table.name: table_rows(lake, table) for table in TABLES}
    archived = segment_rows(lake)

    done = compact(spark, lake, fewest=2)

    assert (done.segments, done.segments_after) == (7, 1)
    assert done.tables_after < done.tables
    assert [path.name[0] for path in segments(lake)] == ["n", "~"]
    assert pq.read_schema(segments(lake)[1]).equals(SEGMENTS.arrow)
    assert segment_rows(lake) == archived
    assert {table.name: table_rows(lake, table) for table in TABLES} == before

    assert compact(spark, lake, fewest=2) == Compacted()
    assert ingest(spark, lake).segments == 1
    assert len(table_rows(lake, MESSAGES)) == len(archived)


@pytest.mark.faults
def test_starting_over_brings_back_what_was_compacted(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    rows = business(10)
    in_segments(lake, rows, 2)
    ingest(spark, lake)
    assert compact(spark, lake, fewest=2).segments == 2
    before = table_rows(lake, LIFECYCLE)

    for folder in (lake.tables, lake.checkpoints):
        shutil.rmtree(folder)
    done = ingest(spark, lake)

    assert (done.segments, done.rows) == (1, len(rows))
    assert table_rows(lake, LIFECYCLE) == before


@pytest.mark.faults
def test_a_segment_that_another_stream_has_not_read_is_left_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake.at(tmp_path)
    in_segments(lake, business(10), 5)
    ingest(spark, lake)
    other = lake.checkpoints / "fraud" / "sources" / "0"
    other.mkdir(parents=True)
    assert compact(spark, lake).segments == 0

    (other / "0").write_text((checkpoint(lake) / "sources" / "0" / "0").read_text())
    (lake.checkpoints / "fraud" / "commits").mkdir()
    assert compact(spark, lake).segments == 0, "its batch is not committed"
    (lake.checkpoints / "fraud" / "commits" / "0").touch()
    assert compact(spark, lake).segments == 5


def test_what_was_compacted_is_new_to_a_lake_that_starts_over(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    for name in ("~a", "~b", "c"):
        write_rows(lake, business(2), name=name)
    checkpoint(lake).mkdir(parents=True)
    with alone(lake):
        assert [path.name for path in new_segments(lake)] == ["c.parquet"]

    shutil.rmtree(lake.checkpoints)
    planned = expire(None, lake, older_than=86_400, dry_run=True, now=at(hours=48))
    assert (planned.segments, planned.kept) == (0, 3)
    assert [path.name for path in segments(lake)] == ["a.parquet", "b.parquet", "c.parquet"]


def test_starting_over_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    for name in ("~a", "~b", "~c"):
        write_rows(lake, business(2), name=name)
    child = (
        "import sys; from queuecraft.pipeline.lake import Lake; "
        "from queuecraft.pipeline.jobs.anew import begin_anew; begin_anew(Lake.at(sys.argv[1]))"
    )
    killed = subprocess.run(
        [sys.executable, "-c", child, str(tmp_path)],
        env={**os.environ, "QUEUECRAFT_FAILPOINT": "anew.after_rename"},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert [path.name for path in segments(lake)] == ["a.parquet", "~b.parquet", "~c.parquet"]
    with alone(lake):
        assert len(new_segments(lake)) == 3
    assert [path.name for path in segments(lake)] == ["a.parquet", "b.parquet", "c.parquet"]


def test_a_name_that_another_segment_has_is_left_to_it(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    write_rows(lake, business(2), name="a", date="2026-03-01")
    write_rows(lake, business(2), name="b")
    write_rows(lake, business(3), name="~a")
    write_rows(lake, business(3), name="~b")
    archived = segment_rows(lake)
    with alone(lake):
        assert len(new_segments(lake)) == 4
    assert segment_rows(lake) == archived


def test_a_swap_whose_new_files_are_gone_removes_nothing(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    lake.checkpoints.mkdir()
    old = tmp_path / "old"
    old.touch()
    (lake.checkpoints / "swap.json").write_text(
        '{"moves": [[".staging/new", "new"]], "removes": ["old"]}'
    )
    with pytest.raises(QueueError, match="new was to take the place of 1 others"):
        finish_swaps(lake)
    assert old.exists()


def test_what_was_staged_and_not_planned_has_not_happened(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    staging(lake).mkdir()
    (staging(lake) / "new").touch()
    finish_swaps(lake)
    assert not staging(lake).exists()


def test_a_swap_takes_the_new_and_leaves_the_old(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    new, old = staging(lake) / "new", lake.tables / "old"
    for folder in (new, old):
        folder.mkdir(parents=True)
        (folder / "file").write_text(folder.name)
    swap(lake, [(new, lake.tables / "new")], [old, lake.tables / "never there"])
    assert [path.name for path in lake.tables.iterdir()] == ["new"]
    assert (lake.tables / "new" / "file").read_text() == "new"
    assert not (lake.checkpoints / "swap.json").exists()
