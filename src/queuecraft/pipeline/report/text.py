"""The report as tables for a terminal or a pipe."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from queuecraft.pipeline.report.figures import Figures, Minute, Percentiles, QueueFigures
from queuecraft.pipeline.report.findings import cause
from queuecraft.pipeline.report.units import percent, plural, seconds

Cell: TypeAlias = str | int | float | datetime | None


@dataclass(frozen=True, slots=True)
class Listing:
    """A table with a title."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    more: str | None = None
    """What it leaves out."""


def listings(figures: Figures) -> Iterable[Listing]:
    """Those with anything in them.

    >>> list(listings(Figures(scope="everything")))
    []
    """
    return (listing for listing in _all(figures) if listing.rows)


def _all(figures: Figures) -> Iterable[Listing]:
    more = plural(figures.more_queues, "queue") if figures.more_queues else None
    names = ("queue", "published", "delivered", "succeeded", "failed", "retried", "dead")
    yield Listing("Queues", names, [_counted(each) for each in figures.queues], more)
    times = [f"{kind} {each}" for kind in ("wait", "handler", "latency") for each in _PERCENTILES]
    yield Listing("Times", ("queue", *times), [_timed(each) for each in figures.queues], more)
    minute = ("minute", "queue", "event", "delivered", "failed", "dead", "latency p99")
    yield Listing("Minutes with the most failures", minute, [_minute(x) for x in figures.worst])
    yield Listing("Slowest minutes", minute, [_minute(each) for each in figures.slowest])
    yield Listing(
        "Growth",
        ("queue", "arrived", "left", "backlog", "at most", "unusual minutes"),
        [
            (each.queue, each.arrived, each.left, each.backlog, each.highest, each.anomalies)
            for each in figures.growth
        ],
    )
    yield Listing(
        "Unusual growth",
        ("minute", "queue", "arrived", "left", "usual change", "deviations"),
        [
            (each.at, each.queue, each.arrived, each.left, each.usual, each.score)
            for each in figures.anomalies
        ],
    )
    yield Listing(
        "Dead letters by cause",
        ("group", "count", "queue", "first seen", "last seen", "error"),
        [
            (x.fingerprint, x.count, x.queue, x.first_seen, x.last_seen, cause(x))
            for x in figures.groups
        ],
        plural(figures.more_groups, "smaller group") if figures.more_groups else None,
    )
    yield Listing(
        "Payloads that changed",
        ("event", "field", "type", "change", "share", "first seen", "last seen"),
        [
            (x.event, x.field, x.type, x.change, percent(x.share), x.first_seen, x.last_seen)
            for x in figures.drift.changes
        ],
        plural(figures.drift.more, "change") if figures.drift.more else None,
    )
    yield Listing(
        "Rows that cannot be read",
        ("problem", "rows", "such as in"),
        [(each.problem, each.count, each.segment) for each in figures.quarantine],
    )


_PERCENTILES = ("p50", "p95", "p99")


def _counted(each: QueueFigures) -> Sequence[Cell]:
    counts = each.counts
    return (
        *(each.queue, counts.published, counts.delivered, counts.succeeded),
        *(percent(counts.failure_rate), percent(counts.retry_rate), counts.dead),
    )


def _timed(each: QueueFigures) -> Sequence[Cell]:
    speed = each.speed
    times: tuple[Percentiles, ...] = (speed.wait, speed.duration, speed.latency)
    return (each.queue, *(seconds(value) for kind in times for value in kind.values))


def _minute(each: Minute) -> Sequence[Cell]:
    counts = each.counts
    return (
        *(each.at, each.queue, each.event, counts.delivered, counts.failed, counts.dead),
        seconds(each.p99),
    )
