"""From segments to tables: what is new since the last time, each row once."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from queuecraft.model.errors import QueueError
from queuecraft.pipeline.jobs.alone import alone
from queuecraft.pipeline.jobs.hours import Hours
from queuecraft.pipeline.jobs.passed import passed_by
from queuecraft.pipeline.jobs.refresh import refresh
from queuecraft.pipeline.jobs.stream import COMPACTED, checkpoint, take_segments
from queuecraft.pipeline.jobs.tables import parquet_files, prepare, sweep_tables
from queuecraft.pipeline.jobs.torn import put_torn_aside
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.schemas import QUARANTINE
from queuecraft.pipeline.spools import convert

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_ERROR = re.compile(r"[\w.]*(?:Error|Exception): ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """What has come into the tables.

    >>> Ingested(segments=2, rows=100).rows
    100
    """

    segments: int = 0
    rows: int = 0
    torn: int = 0  # segments that could not be read
    quarantined: int = 0  # rows, those for torn segments among them
    hours: int = 0  # of birth, whose tables were made anew
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """How far it has come: `done` of `total` rows are in bronze, then in all tables."""

    what: str
    done: int = 0
    total: int = 0


def ingest(
    spark: SparkSession, lake: Lake, *, progress: Callable[[Step], object] | None = None
) -> Ingested:
    """Bring the tables of a lake up to date: convert the spools of the journal, take the segments
    that are new into bronze, and make silver and gold anew for the hours they touch.

    It can be killed at any time; the next one goes on where it ended. Raises `ConfigError` if
    there is no lake, and `NotNow`, a `QueueError`, if another job is at work on it or a segment
    cannot be read for a reason that is not in the file.
    """
    tell = progress or (lambda step: None)
    with alone(lake) as lake:
        began = time.perf_counter()
        tell(Step("converting the journal"))
        convert(lake)
        prepare(spark)
        sweep_tables(lake)
        tell(Step("looking at segments"))
        new = new_segments(lake)
        inspected = put_torn_aside(new)
        torn = len(inspected.torn)

        def on_rows(rows: int) -> None:
            tell(Step("reading segments", rows, max(rows, inspected.rows)))

        on_rows(0)
        try:
            take_segments(spark, lake, on_rows)
        except Exception as error:
            # A footer may be whole and what is before it not.
            broken = put_torn_aside(new_segments(lake), thoroughly=True).torn
            if not broken:
                raise _stopped(lake, error) from error
            torn += len(broken)
            take_segments(spark, lake, on_rows)
        hours = Hours(lake)
        total = hours.waiting
        done = 0

        def on_group(rows: int) -> None:
            nonlocal done
            done += rows
            tell(Step("making tables", done, max(done, total)))

        touched = set(hours.touched)
        before = _count(lake)
        if hours.stale:
            tell(Step("making tables", 0, total))
            refresh(spark, lake, hours, on_group)
        return Ingested(
            segments=len(new),
            rows=total,
            torn=torn,
            quarantined=_count(lake) - before,
            hours=len(touched),
            seconds=time.perf_counter() - began,
        )


def new_segments(lake: Lake) -> list[Path]:
    """Segments that the stream has not passed yet. Raises `QueueError` if two have the same name:
    the stream would take them for one."""
    passed = passed_by(checkpoint(lake))
    segments = list(segments_of(lake))
    twice = [name for name, count in Counter(each.name for each in segments).items() if count > 1]
    if twice:
        raise QueueError(
            f"there is more than one segment {twice[0]!r} in {lake.segments}; a segment is known "
            "by its name, so rename the one that was copied there"
        )
    return [each for each in segments if each.name not in passed]


def segments_of(lake: Lake) -> Iterator[Path]:
    """The segments that the journal and captures have written."""
    for path in sorted(lake.segments.glob("date=*/*.parquet")):
        if not path.name.startswith((".", COMPACTED)):
            yield path


def _stopped(lake: Lake, error: Exception) -> QueueError:
    lines = str(error).splitlines() or [type(error).__name__]
    told = [line for line in lines if _ERROR.match(line)] or lines[:1]  # a stack may follow
    return QueueError(
        f"Spark could not take the segments of {lake.root}: {told[-1][:500]}. Nothing is lost: "
        "what was taken before stays, the next ingest goes on from there"
    )


def _count(lake: Lake) -> int:
    """Rows in quarantine, by the footers of its files."""
    files = parquet_files(lake.tables / QUARANTINE.name)
    return sum(pq.read_metadata(file).num_rows for file in files)
