"""Lines of the overview as JSON: queues, workers, groups of failures, and what happened."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator

from queuecraft.admin.overview import Point, QueueRow
from queuecraft.http.api.routes import Told


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _drain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "never"
    return value


Number: TypeAlias = Annotated[float | None, BeforeValidator(_finite)]
Drain: TypeAlias = Annotated[float | Literal["never"] | None, BeforeValidator(_drain)]
Past: TypeAlias = list[tuple[float, float | None]]


class QueueLine(Told):
    """A queue, what is in it, and how fast that changes. What is not known is null."""

    name: str
    ready: int | None
    in_flight: int | None
    delayed: int | None
    dead: int | None
    consumers: int | None
    oldest_age: Number
    in_per_second: Number
    handled_per_second: Number
    failed_per_second: Number
    p95: Number
    drain: Drain
    paused: str | None
    holds_dead_letters: bool


class WorkerLine(Told):
    """A worker of a process, seen by its signs of life."""

    process: str
    host: str
    pid: int
    queue: str
    state: Literal["running", "paused", "reconnecting", "silent"]
    started_at: datetime
    seen_at: datetime
    version: str
    concurrency: int
    in_flight: int
    handled: int
    failed: int
    handled_per_second: Number
    p95: Number
    paused: str | None
    blocked: str | None
    last_error: str | None


class CircuitLine(Told):
    """A circuit breaker of a process."""

    process: str
    host: str
    name: str
    state: str


class GroupLine(Told):
    """Dead letters of one queue that failed alike."""

    queue: str
    fingerprint: str
    count: int
    error_type: str
    error: str
    reason: str
    event: str
    first: datetime | None
    last: datetime | None
    example: str


class HappeningLine(Told):
    """Something worth a line."""

    at: datetime
    kind: str
    text: str
    level: Literal["info", "warning", "error"]
    queue: str | None


def past(points: Iterable[Point]) -> Past:
    """What was measured, as pairs of a moment and a number.

    >>> past([(1.0, float("inf")), (2.0, 3.0)])
    [(1.0, None), (2.0, 3.0)]
    """
    return [(at, _finite(value)) for at, value in points]


def by_drain(row: QueueRow) -> tuple[bool, float, int, str]:
    """Sorts queues: those that never drain first, then those that take longest; empty ones last.

    >>> rows = [
    ...     QueueRow(name="empty", ready=0, drain=0.0),
    ...     QueueRow(name="slow", ready=9, drain=60.0),
    ...     QueueRow(name="stuck", ready=5, drain=float("inf")),
    ... ]
    >>> [row.name for row in sorted(rows, key=by_drain)]
    ['stuck', 'slow', 'empty']
    """
    drain = -1.0 if row.drain is None else row.drain
    ready = row.ready or 0
    return not ready, -drain, -ready, row.name
