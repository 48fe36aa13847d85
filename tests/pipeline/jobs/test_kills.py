"""Jobs that are killed: the next one makes it as if nothing had happened."""

from __future__ import annotations

import random
import re
import shutil
import signal
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import queuecraft.pipeline.jobs
from queuecraft.pipeline.horizon import horizon
from queuecraft.pipeline.jobs.ingest import ingest
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.schemas import MESSAGES, SEGMENTS, TABLES
from tests.pipeline.jobs.child import JOBS, NOW, OLD, job
from tests.pipeline.rows import business, in_segments, segment_rows, table_rows, write_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCES: Final = Path(queuecraft.pipeline.jobs.__file__).parent.glob("*.py")
POINTS: Final = sorted(
    {
        name
        for source in SOURCES
        for name in re.findall(r'failpoint\("([^"]+)"\)', source.read_text(encoding="utf-8"))
    }
)
INGEST: Final = [name for name in POINTS if name.startswith(("ingest.", "torn."))]
COMPACT: Final = [name for name in POINTS if name.startswith(("compact.", "swap."))]
EXPIRE: Final = [
    name
    for name in POINTS
    if name.startswith(("expire.", "swap.", "ingest.after_growth", "ingest.after_dead"))
    and name != "swap.between_moves"
]


def filled(lake: Lake) -> Lake:
    """A lake with segments of two days, one of them torn."""
    rows = business(40)
    in_segments(lake, rows, 6)
    write_rows(lake, business(10, seed=2), name="other", date="2026-03-03")
    (lake.segments / "date=2026-03-02" / "torn.parquet").write_bytes(b"PAR1")
    return lake


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return filled(Lake.at(tmp_path_factory.mktemp("fresh")))


@pytest.fixture(scope="module")
def ingested(spark: SparkSession, fresh: Lake, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """In two steps: what is in which batch does not matter."""
    lake = copy(fresh, tmp_path_factory.mktemp("ingested"))
    path = lake.segments / "date=2026-03-03" / "other.parquet"
    hidden = path.rename(path.with_name(".other.parquet"))
    ingest(spark, lake)
    hidden.rename(path)
    ingest(spark, lake)
    return lake


def copy(lake: Lake, place: Path) -> Lake:
    shutil.copytree(lake.root, place, dirs_exist_ok=True)
    return Lake.at(place)


def everything(lake: Lake) -> Mapping[str, list[dict[str, Any]]]:
    """All tables and all segments, whatever files they are in."""
    found = {table.name: table_rows(lake, table) for table in TABLES}
    found[SEGMENTS.name] = segment_rows(lake)
    return found


def dies(name: str, lake: Lake, point: str) -> None:
    with job(name, lake, point) as process:
        assert process.wait() == -signal.SIGKILL, f"{name} never came to {point}"


def comes_back_from(spark: SparkSession, name: str, before: Lake, after: Lake, point: str) -> None:
    dies(name, before, point)
    JOBS[name](spark, before)
    assert everything(before) == everything(after)
    if name == "ingest":
        assert ingest(spark, before).rows == 0


@pytest.mark.faults
@pytest.mark.timeout(180)
def test_a_killed_compaction_loses_and_doubles_nothing(
    spark: SparkSession, ingested: Lake, tmp_path: Path
) -> None:
    lake = copy(ingested, tmp_path)
    dies("compact", lake, "swap.between_removals")
    ingest(spark, lake)  # any job finishes what was begun
    assert everything(lake) == everything(ingested)


# -- and the others --------------------------------------------------------------------------------


@pytest.mark.faults
@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", INGEST)
def test_ingest_can_die_anywhere(
    spark: SparkSession, fresh: Lake, ingested: Lake, tmp_path: Path, point: str
) -> None:
    comes_back_from(spark, "ingest", copy(fresh, tmp_path), ingested, point)


@pytest.mark.faults
@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", COMPACT)
def test_compact_can_die_anywhere(
    spark: SparkSession, ingested: Lake, tmp_path: Path, point: str
) -> None:
    comes_back_from(spark, "compact", copy(ingested, tmp_path), ingested, point)


@pytest.fixture(scope="module")
def expired(spark: SparkSession, ingested: Lake, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = copy(ingested, tmp_path_factory.mktemp("expired"))
    JOBS["expire"](spark, lake)
    assert 0 < len(table_rows(lake, MESSAGES)) < len(table_rows(ingested, MESSAGES))
    return lake


@pytest.mark.faults
@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", EXPIRE)
def test_expire_can_die_anywhere(
    spark: SparkSession, ingested: Lake, expired: Lake, tmp_path: Path, point: str
) -> None:
    lake = copy(ingested, tmp_path)
    dies("expire", lake, point)
    assert horizon(lake) == NOW - timedelta(seconds=OLD)
    JOBS["expire"](spark, lake)
    assert everything(lake) == everything(expired)


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_ingest_can_die_at_any_time(
    spark: SparkSession, fresh: Lake, ingested: Lake, tmp_path: Path
) -> None:
    chance = random.Random(20260302)
    with job("ingest", copy(fresh, tmp_path / "whole")) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        began = time.monotonic()
        assert process.stdout.readline() == "done\n"
        whole = time.monotonic() - began
    for number in range(10):
        lake = copy(fresh, tmp_path / str(number))
        with job("ingest", lake) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            # Not a wait for anything: the moment of death is to be by chance.
            time.sleep(chance.uniform(0, whole))
            process.kill()
        ingest(spark, lake)
        assert everything(lake) == everything(ingested), f"killed for the {number + 1}. time"
