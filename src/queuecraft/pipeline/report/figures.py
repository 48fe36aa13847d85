"""The numbers of a report: few, however large the lake is."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeAlias

Values: TypeAlias = tuple[float | None, float | None, float | None]


@dataclass(frozen=True, slots=True)
class Counts:
    """How many messages and deliveries, and what became of them.

    >>> Counts(delivered=200, succeeded=190, retried=8, dead=2).failed
    10
    """

    published: int = 0
    delivered: int = 0
    succeeded: int = 0
    retried: int = 0
    dead: int = 0
    dropped: int = 0
    expired: int = 0
    bytes: int = 0

    @property
    def failed(self) -> int:
        """Deliveries whose handler did not succeed, whether they were tried again or not."""
        return self.retried + self.dead + self.dropped

    @property
    def failure_rate(self) -> float | None:
        """Of all deliveries; None if there was none."""
        return self.failed / self.delivered if self.delivered else None

    @property
    def retry_rate(self) -> float | None:
        """Of all deliveries; None if there was none."""
        return self.retried / self.delivered if self.delivered else None

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.published + other.published,
            self.delivered + other.delivered,
            self.succeeded + other.succeeded,
            self.retried + other.retried,
            self.dead + other.dead,
            self.dropped + other.dropped,
            self.expired + other.expired,
            self.bytes + other.bytes,
        )


@dataclass(frozen=True, slots=True)
class Percentiles:
    """What half, 95 and 99 of a hundred stay below, in seconds; None where nothing was measured."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None

    @property
    def values(self) -> Values:
        """The three of them."""
        return self.p50, self.p95, self.p99


@dataclass(frozen=True, slots=True)
class Speed:
    """How long messages took."""

    wait: Percentiles = Percentiles()
    """From due to the first handler."""
    duration: Percentiles = Percentiles()
    """In handlers, all attempts together."""
    latency: Percentiles = Percentiles()
    """From due to settled."""


@dataclass(frozen=True, slots=True)
class Axis:
    """The stretches of time that plots are made of, all of the same length.

    >>> axis = Axis(0, 300, 12)
    >>> axis.moment(2).isoformat()
    '1970-01-01T00:10:00+00:00'
    >>> axis.place(605), axis.place(3600)
    (2, None)
    """

    start: int
    """Seconds since the epoch."""
    step: int
    """Seconds."""
    count: int

    @property
    def end(self) -> int:
        """Where the last one ends."""
        return self.start + self.step * self.count

    def moment(self, number: int) -> datetime:
        """When one of them begins."""
        return moment(self.start + number * self.step)

    def place(self, seconds: int) -> int | None:
        """The one that a time is in."""
        number = (seconds - self.start) // self.step
        return number if 0 <= number < self.count else None


@dataclass(frozen=True, slots=True)
class Series:
    """Numbers over time, one for each stretch of the axis."""

    counts: tuple[Counts, ...] = ()
    latency: tuple[Percentiles, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """How a queue does."""

    queue: str
    counts: Counts
    speed: Speed
    series: Series | None = None
    """For the busiest only."""


@dataclass(frozen=True, slots=True)
class Minute:
    """A minute of a queue and an event."""

    at: datetime
    queue: str | None
    event: str | None
    counts: Counts
    p99: float | None
    """Of the latency."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A minute in which a queue grew or shrank as it usually does not."""

    at: datetime
    queue: str | None
    arrived: int
    left: int
    usual: float | None
    score: float | None


@dataclass(frozen=True, slots=True)
class Growth:
    """Whether a queue grows."""

    queue: str
    backlog: int
    highest: int
    arrived: int
    left: int
    anomalies: int
    series: tuple[int | None, ...] = ()
    """The backlog at most in each stretch of the axis; None before the first and after the last
    that is known."""
    marks: tuple[int, ...] = ()
    """The stretches with an anomaly."""


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Dead letters with the same cause."""

    fingerprint: str
    queue: str | None
    event: str | None
    reason: str | None
    error_type: str | None
    error: str | None
    count: int
    first_seen: datetime | None
    last_seen: datetime | None
    message_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an event's payloads, and what has become of it."""

    event: str | None
    field: str
    type: str
    count: int
    share: float | None
    change: str
    first_seen: datetime | None
    last_seen: datetime | None


@dataclass(frozen=True, slots=True)
class Drift:
    """How payloads change."""

    events: int = 0
    fields: int = 0
    changes: tuple[Field, ...] = ()
    more: int = 0
    """Changes that are not among these."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why rows could not be read, how many, and a segment that has one."""

    problem: str
    count: int
    segment: str | None


@dataclass(frozen=True, slots=True)
class Heat:
    """Deliveries by hour: a row for each day, or for each day of the week if there are many."""

    rows: tuple[tuple[str, tuple[Counts, ...]], ...] = ()
    weekly: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All numbers of a report.

    >>> Figures(scope="everything").empty
    True
    """

    scope: str
    first: datetime | None = None
    """The first minute with anything in it."""
    last: datetime | None = None
    """The end of the last one."""
    axis: Axis | None = None
    counts: Counts = Counts()
    unseen: int = 0
    """Messages that were published, and that no worker has reported on."""
    latency: Percentiles = Percentiles()
    series: Series = Series()
    queues: tuple[QueueFigures, ...] = ()
    more_queues: int = 0
    """Queues that are not among these."""
    worst: tuple[Minute, ...] = ()
    slowest: tuple[Minute, ...] = ()
    growth: tuple[Growth, ...] = ()
    anomalies: tuple[Anomaly, ...] = ()
    groups: tuple[FailureGroup, ...] = ()
    more_groups: int = 0
    drift: Drift = field(default_factory=Drift)
    quarantine: tuple[Problem, ...] = ()
    heat: Heat = field(default_factory=Heat)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to tell."""
        return not (self.queues or self.counts.published or self.groups or self.quarantine)


EARLIEST, LATEST = -62135596800, 253402300799  # years 1 and 9999, the ends of datetime


def moment(seconds: float) -> datetime:
    """A time from seconds since the epoch; what no calendar has becomes its nearest day.

    >>> moment(1e18).year
    9999
    """
    return datetime.fromtimestamp(min(max(seconds, EARLIEST), LATEST), UTC)
