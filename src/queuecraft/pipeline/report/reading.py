"""Reading the numbers of a report from a lake: Spark sums up, a few rows come back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from queuecraft.pipeline.report import aggregates, groups
from queuecraft.pipeline.report.axis import DAY, axis_over
from queuecraft.pipeline.report.figures import (
    Anomaly,
    Axis,
    Counts,
    Drift,
    Field,
    Figures,
    Growth,
    Heat,
    Minute,
    Percentiles,
    Problem,
    QueueFigures,
    Series,
    Speed,
    moment,
)
from queuecraft.pipeline.report.scope import Scope
from queuecraft.pipeline.report.tables import reading, table
from queuecraft.pipeline.schemas import DRIFT, GROWTH, LIFECYCLE, QUARANTINE, THROUGHPUT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from queuecraft.pipeline.lake import Lake

QUEUES = 100  # in the table
PLOTTED = 8  # queues with plots of their own
MINUTES = 10
GROUPS = 25
CHANGES = 50
PROBLEMS = 20
DAYS = 14  # if there are more, days of the week are told apart and not days
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def read_figures(
    spark: SparkSession,
    lake: Lake,
    scope: Scope | None = None,
    *,
    on_step: Callable[[str], object] = lambda what: None,
) -> Figures:
    """The numbers of a lake; `on_step` is told what is being looked at."""
    with reading(lake):
        return _read(spark, lake, scope or Scope(), on_step)


def _read(
    spark: SparkSession, lake: Lake, scope: Scope, on_step: Callable[[str], object]
) -> Figures:
    throughput, growth, lifecycle, drift, quarantine = (
        scope.about(table(spark, lake, each))
        for each in (THROUGHPUT, GROWTH, LIFECYCLE, DRIFT, QUARANTINE)
    )
    throughput, growth = throughput.where(scope.at("minute")), growth.where(scope.at("minute"))
    drift = drift.where(scope.overlaps("first_seen", "last_seen"))
    # What has no time that can be read belongs to every time.
    quarantine = quarantine.where(scope.at("at") | f.col("at").isNull())

    on_step("throughput")
    (whole,) = aggregates.whole(throughput).collect()
    covered = None if whole["first"] is None else (int(whole["first"]), int(whole["last"]))
    axis = None if covered is None else axis_over(*covered)
    busiest = aggregates.busiest_queues(throughput, QUEUES).collect()
    on_step("latency")
    names = [row["queue"] for row in busiest]
    speeds = aggregates.speed_by_queue(lifecycle, scope, names).collect()
    by_queue = {row["queue"]: row for row in speeds}
    series: dict[str | None, Series] = {}
    latency = Percentiles()
    if axis is not None:
        plotted = names[:PLOTTED]
        series, latency = _series(throughput, lifecycle, scope, axis, plotted)
    on_step("growth")
    grown = () if axis is None else _growth(growth, axis)
    unusual = tuple(map(_anomaly, aggregates.anomalies(growth, MINUTES).collect()))
    on_step("failures")
    dead = groups.dead_letters(spark, lake, scope)
    counts = _counts(whole)
    if scope.queues:
        # What went through an exchange is known by queue only where a queue has it.
        counts = _published(counts, sum(row["published"] for row in speeds))
    worst = aggregates.worst_minutes(throughput, MINUTES).collect()
    slowest = aggregates.slowest_minutes(throughput, MINUTES).collect()
    found = groups.collected(dead, f.desc("count"), GROUPS)
    more_groups = 0 if len(found) < GROUPS else dead.count() - len(found)
    on_step("schemas")
    return Figures(
        scope=str(scope),
        first=None if covered is None else moment(covered[0]),
        last=None if covered is None else moment(covered[1] + 60),
        axis=axis,
        counts=counts,
        unseen=sum(row["unseen"] for row in speeds),
        latency=latency,
        series=series.get(None, Series()),
        queues=tuple(
            QueueFigures(
                row["queue"],
                _published(_counts(row), _count(by_queue.get(row["queue"]), "published")),
                _speed(by_queue.get(row["queue"])),
                series.get(row["queue"]),
            )
            for row in busiest
        ),
        more_queues=whole["queues"] - len(busiest),
        worst=tuple(map(_minute, worst)),
        slowest=tuple(map(_minute, slowest)),
        growth=grown,
        anomalies=unusual,
        groups=found,
        more_groups=more_groups,
        drift=_drift(drift),
        quarantine=tuple(
            Problem(row["problem"], row["count"], row["segment"])
            for row in aggregates.problems(quarantine, PROBLEMS).collect()
        ),
        heat=Heat() if covered is None else _heat(throughput, *covered),
    )


def _series(
    throughput: DataFrame, lifecycle: DataFrame, scope: Scope, axis: Axis, names: Sequence[str]
) -> tuple[dict[str | None, Series], Percentiles]:
    """Over time: by queue, and under no name of all together; and the latency of all time."""
    counts = {name: [Counts()] * axis.count for name in (None, *names)}
    latency = {name: [Percentiles()] * axis.count for name in (None, *names)}
    for row in aggregates.counts_by_time(throughput, axis, names).collect():
        place, queue = row["place"], row["queue"]
        found = _counts(row)
        counts[None][place] += found
        if queue is not None:
            counts[queue][place] = _published(found, 0)
    by_queue = aggregates.published_by_time(lifecycle, scope, axis, names).collect()
    if scope.queues:
        counts[None] = [_published(each, 0) for each in counts[None]]
    for row in by_queue:
        place, queue = row["place"], row["queue"]
        more = Counts(published=row["published"])
        if queue is not None:
            counts[queue][place] += more
        if scope.queues:
            counts[None][place] += more
    whole = Percentiles()
    for row in aggregates.latency_by_time(lifecycle, scope, axis, names).collect():
        if row["place"] is None:
            whole = _percentiles(row["latency"])
        elif row["whole"] or row["queue"] is not None:
            latency[row["queue"]][row["place"]] = _percentiles(row["latency"])
    return {name: Series(tuple(counts[name]), tuple(latency[name])) for name in counts}, whole


def _growth(growth: DataFrame, axis: Axis) -> tuple[Growth, ...]:
    rows = aggregates.growth_by_queue(growth, PLOTTED).collect()
    names = [row["queue"] for row in rows]
    backlogs: dict[str, dict[int, tuple[int, int]]] = {name: {} for name in names}
    marks: dict[str, list[int]] = {name: [] for name in names}
    for row in aggregates.growth_by_time(growth, axis, names).collect():
        backlogs[row["queue"]][row["place"]] = row["highest"] or 0, row["backlog"] or 0
        if row["anomaly"]:
            marks[row["queue"]].append(row["place"])
    return tuple(
        Growth(
            queue=row["queue"],
            backlog=row["backlog"] or 0,
            highest=row["highest"] or 0,
            arrived=row["arrived"] or 0,
            left=row["left"] or 0,
            anomalies=row["anomalies"],
            series=tuple(_lasting(backlogs[row["queue"]], axis.count)),
            marks=tuple(sorted(marks[row["queue"]])),
        )
        for row in rows
    )


def _lasting(known: dict[int, tuple[int, int]], count: int) -> Iterable[int | None]:
    """The most there was in each stretch of time; a backlog stays what it was until it changes."""
    latest: int | None = None
    end = max(known, default=-1)
    for place in range(count):
        highest, latest = known.get(place, (latest, latest))
        yield highest if place <= end else None


def _heat(throughput: DataFrame, first: int, last: int) -> Heat:
    days = range(first // DAY, last // DAY + 1)
    weekly = len(days) > DAYS
    rows = range(7) if weekly else days
    cells = {day: [Counts()] * 24 for day in rows}
    for row in aggregates.counts_by_hour(throughput, weekly=weekly).collect():
        cells[row["day"]][row["hour"]] = _counts(row)
    return Heat(tuple((_day(day, weekly), tuple(cells[day])) for day in rows), weekly)


def _day(day: int, weekly: bool) -> str:
    if weekly:
        return WEEKDAYS[day]
    when = date(1970, 1, 1) + timedelta(days=day)
    return f"{WEEKDAYS[when.weekday()]} {when.isoformat()}"


def _drift(drift: DataFrame) -> Drift:
    (known,) = aggregates.extent(drift).collect()
    found = aggregates.changes(drift, CHANGES).collect() if known["changes"] else []
    return Drift(
        events=known["events"],
        fields=known["fields"],
        changes=tuple(
            Field(
                event=row["event"],
                field=row["field"] or "",
                type=row["type"] or "",
                count=row["count"] or 0,
                share=row["share"],
                change=row["change"],
                first_seen=None if row["first_seen"] is None else moment(row["first_seen"]),
                last_seen=None if row["last_seen"] is None else moment(row["last_seen"]),
            )
            for row in found
        ),
        more=known["changes"] - len(found),
    )


def _counts(row: Row) -> Counts:
    return Counts(*(row[name] or 0 for name in aggregates.COUNTS))


def _published(counts: Counts, published: int) -> Counts:
    return replace(counts, published=published)


def _count(row: Row | None, name: str) -> int:
    return 0 if row is None else row[name] or 0


def _speed(row: Row | None) -> Speed:
    if row is None:
        return Speed()
    return Speed(*(_percentiles(row[name]) for name in aggregates.TIMES))


def _percentiles(values: Sequence[float] | None) -> Percentiles:
    return Percentiles(*values) if values else Percentiles()


def _minute(row: Row) -> Minute:
    return Minute(moment(row["at"]), row["queue"], row["event"], _counts(row), row["latency_p99"])


def _anomaly(row: Row) -> Anomaly:
    return Anomaly(
        at=moment(row["at"]),
        queue=row["queue"],
        arrived=row["arrived"] or 0,
        left=row["left"] or 0,
        usual=row["usual"],
        score=row["score"],
    )
