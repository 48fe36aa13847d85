"""Letting go of what is old."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from queuecraft.failpoints import failpoint
from queuecraft.model.errors import ConfigError
from queuecraft.pipeline.horizon import move_horizon
from queuecraft.pipeline.jobs.alone import alone
from queuecraft.pipeline.jobs.hours import Hour, Hours, folder_of
from queuecraft.pipeline.jobs.passed import passed_segments
from queuecraft.pipeline.jobs.refresh import refresh
from queuecraft.pipeline.jobs.stream import COMPACTED
from queuecraft.pipeline.jobs.swap import swap
from queuecraft.pipeline.jobs.tables import hours_of, parquet_files, prepare, sweep_tables
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.schemas import (
    EVENTS,
    GROWTH,
    LIFECYCLE,
    MESSAGES,
    PARTS,
    QUARANTINE,
    THROUGHPUT,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


BORN: Final = (MESSAGES, EVENTS, QUARANTINE, LIFECYCLE, *PARTS)
"""Tables by the hour of birth; the others are by the minute something happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """What was removed, or would be.

    >>> Expired(before=datetime(2026, 1, 1, tzinfo=UTC), segments=3, size=1_000).size
    1000
    """

    before: datetime
    segments: int = 0
    partitions: dict[str, int] = field(default_factory=dict[str, int])  # hours, by table
    size: int = 0  # bytes
    kept: int = 0  # segments as old as that, not ingested yet


def expire(
    spark: SparkSession | None,
    lake: Lake,
    *,
    older_than: float,
    dry_run: bool = False,
    now: datetime | None = None,
) -> Expired:
    """Remove what is older than so many seconds: segments by the date they were written, messages
    by the hour of birth once nothing happened to any of them since, counts by their minutes.
    Segments that are not ingested stay. A dry run only counts, and needs no Spark. Before anything
    goes, it is written down in the lake how far back it reaches from then on.

    Raises `ConfigError` for less than an hour: that would be a mistake.
    """
    if older_than < 3600:
        raise ConfigError(f"older_than={older_than}: nothing younger than an hour is removed")
    if spark is None and not dry_run:
        raise ConfigError("only a dry run can do without Spark")
    now = now or datetime.now(UTC)
    before = now - timedelta(seconds=older_than)
    with alone(lake) as lake:
        sweep_tables(lake)
        hours = Hours(lake)
        horizon = f"{before:%Y-%m-%dT%H}"
        segments, torn, kept = _segments(lake, before)
        gone = _gone(lake, hours, horizon)
        partitions = _partitions(lake, gone, horizon)
        removes = [*segments, *torn, *(each for places in partitions.values() for each in places)]
        expired = Expired(
            before=before,
            segments=len(segments),
            partitions={table: len(places) for table, places in partitions.items() if places},
            size=sum(_size(path) for path in removes),
            kept=kept,
        )
        if dry_run or spark is None:
            return expired
        prepare(spark)
        if removes:
            # A kill from here on is on the safe side: some of what is still there counts as gone.
            move_horizon(lake, before, now)
            failpoint("expire.before_forgetting")
            hours.forget(gone, horizon)
            failpoint("expire.after_forgetting")
            swap(lake, (), removes)
            _prune(lake, f"{before:%Y-%m-%d}")
            failpoint("expire.before_refresh")
        if hours.stale:
            refresh(spark, lake, hours)
        return expired


def _segments(lake: Lake, before: datetime) -> tuple[list[Path], list[Path], int]:
    passed = passed_segments(lake)
    segments: list[Path] = []
    torn: list[Path] = []
    kept = 0
    for date in sorted(lake.segments.glob("date=*")):
        if date.name.removeprefix("date=") < f"{before:%Y-%m-%d}":
            torn += date.glob(".*.torn")
            for path in sorted(date.glob("*.parquet")):
                if path.name in passed or path.name.startswith(COMPACTED):
                    segments.append(path)
                elif not path.name.startswith("."):
                    kept += 1
    return segments, torn, kept


def _gone(lake: Lake, hours: Hours, before: Hour) -> set[Hour]:
    """Hours of birth that are over in every respect. What waits to be worked on is not."""
    known = hours.all()
    # One that nobody knows of was being removed by a job that died.
    there = set(known).union(*(hours_of(lake, table) for table in BORN))
    return {
        hour
        for hour in there
        if hour not in hours.touched
        and max({hour} if hour not in known else known[hour].at | {hour}) < before
    }


def _prune(lake: Lake, before: str) -> None:
    """Remove the folders of dates that nothing is left of."""
    for folder in (lake.segments, *lake.tables.glob("*")):
        for date in folder.glob("date=*"):
            if date.name.removeprefix("date=") < before:
                with suppress(OSError):  # something is left
                    date.rmdir()


def _partitions(lake: Lake, gone: set[Hour], before: Hour) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for table in BORN:
        root = lake.tables / table.name
        found[table.name] = [
            root / folder_of(hour) for hour in hours_of(lake, table) if hour in gone
        ]
    for table in (THROUGHPUT, GROWTH):
        root = lake.tables / table.name
        found[table.name] = [
            root / folder_of(hour) for hour in hours_of(lake, table) if hour < before
        ]
    return found


def _size(path: Path) -> int:
    files = parquet_files(path) if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)
