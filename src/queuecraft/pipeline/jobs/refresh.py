"""Silver and gold made anew where bronze has changed, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Final

from queuecraft.failpoints import failpoint
from queuecraft.pipeline.jobs.hours import Hour, Hours, Known, in_groups
from queuecraft.pipeline.jobs.tables import hours_of, read, read_hours, replace, replace_hours
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.schemas import (
    DEAD_LETTERS,
    DEATHS,
    DRIFT,
    EVENTS,
    FIELDS,
    FLOWS,
    GROWTH,
    LIFECYCLE,
    MESSAGES,
    QUARANTINE,
    THROUGHPUT,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOGETHER: Final = 1_000_000
"""Rows worked on at once, about; a single hour is never divided."""


def refresh(
    spark: SparkSession,
    lake: Lake,
    hours: Hours,
    on_rows: Callable[[int], object] = lambda rows: None,
) -> None:
    """Bring all tables up to date with the hours that were touched. Done twice, it is the same."""
    known = hours.all()
    since = hours.horizon
    for group in in_groups(hours.touched, known, TOGETHER):
        failpoint("ingest.before_silver")
        _silver(spark, lake, group)
        on_rows(sum(known[hour].rows for hour in group))
    if hours.touched:
        failpoint("ingest.before_gold")
        happened = set[Hour]().union(*(known[hour].at for hour in hours.touched))
        _throughput(spark, lake, {hour for hour in happened if hour >= since}, known)
        if not hours.shrunk:
            since = max(since, min(happened | set(hours.touched)))
    _whole(spark, lake, since)
    failpoint("ingest.before_done")
    hours.done()


def _silver(spark: SparkSession, lake: Lake, hours: list[Hour]) -> None:
    from queuecraft.pipeline.transforms.deaths import deaths
    from queuecraft.pipeline.transforms.events import events
    from queuecraft.pipeline.transforms.fields import fields
    from queuecraft.pipeline.transforms.flows import flows
    from queuecraft.pipeline.transforms.lifecycle import lifecycle
    from queuecraft.pipeline.transforms.quarantine import quarantine

    bronze = read_hours(spark, lake, MESSAGES, hours)
    replace_hours(events(bronze), lake, EVENTS, hours)
    failpoint("ingest.after_events")
    replace_hours(quarantine(bronze), lake, QUARANTINE, hours)
    failpoint("ingest.after_quarantine")
    clean = read_hours(spark, lake, EVENTS, hours)
    replace_hours(lifecycle(clean), lake, LIFECYCLE, hours)
    failpoint("ingest.after_lifecycle")
    replace_hours(flows(read_hours(spark, lake, LIFECYCLE, hours)), lake, FLOWS, hours)
    replace_hours(deaths(clean), lake, DEATHS, hours)
    replace_hours(fields(clean), lake, FIELDS, hours)
    failpoint("ingest.after_parts")


def _throughput(
    spark: SparkSession, lake: Lake, happened: Iterable[Hour], known: dict[Hour, Known]
) -> None:
    """Rows of an hour may be with messages that were born long before."""
    from queuecraft.pipeline.transforms.throughput import throughput

    born: dict[Hour, set[Hour]] = {}
    for hour, each in known.items():
        for at in each.at:
            born.setdefault(at, set()).add(hour)
    sizes = {at: Known(sum(known[hour].rows for hour in hours)) for at, hours in born.items()}
    for group in in_groups(happened, sizes, TOGETHER):
        births = set[Hour]().union(*(born[at] for at in group))
        rows = throughput(
            read_hours(spark, lake, EVENTS, births), read_hours(spark, lake, LIFECYCLE, births)
        )
        replace_hours(_dated(rows, group), lake, THROUGHPUT, group)
        failpoint("ingest.after_throughput")


def _whole(spark: SparkSession, lake: Lake, since: Hour) -> None:
    """The tables made of all hours: their parts are small. Growth changes only after something
    else has."""
    from queuecraft.pipeline.transforms.dead_letters import dead_letters
    from queuecraft.pipeline.transforms.drift import drift
    from queuecraft.pipeline.transforms.growth import growth

    start = datetime.fromisoformat(f"{since}:00+00:00") if since else None
    grown = growth(read(spark, lake, FLOWS), since=start)
    hours = [hour for hour in hours_of(lake, GROWTH) if hour >= since]
    replace_hours(_dated(grown), lake, GROWTH, hours)
    failpoint("ingest.after_growth")
    replace(dead_letters(read(spark, lake, DEATHS)), lake, DEAD_LETTERS)
    failpoint("ingest.after_dead_letters")
    replace(drift(read(spark, lake, FIELDS)), lake, DRIFT)


def _dated(rows: DataFrame, hours: Iterable[Hour] | None = None) -> DataFrame:
    """Rows in the folders of their minutes, and of some hours only."""
    from pyspark.sql import functions as f

    dated = rows.withColumns({"date": f.to_date("minute"), "hour": f.hour("minute")})
    if hours is None:
        return dated
    return dated.where(f.date_format("minute", "yyyy-MM-dd'T'HH").isin(*hours))
