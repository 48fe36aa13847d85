"""Everything at a glance, as the dashboard and the live view show it: plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from queuecraft.runtime.failure_groups import FailureGroup

__all__ = [
    "CircuitRow",
    "FailureGroup",
    "Happening",
    "Numbers",
    "Overview",
    "Point",
    "QueueRow",
    "Word",
    "WorkerRow",
]

Word: TypeAlias = Literal["healthy", "warning", "critical"]
Point: TypeAlias = tuple[float, float | None]
"""A moment (seconds since 1970), and what was measured then; None if it could not be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """A queue, what is in it, and how fast that changes. What is not known is None."""

    name: str
    ready: int | None = None
    in_flight: int | None = None
    delayed: int | None = None
    dead: int | None = None
    consumers: int | None = None
    oldest_age: float | None = None
    in_per_second: float | None = None
    handled_per_second: float | None = None
    failed_per_second: float | None = None
    p95: float | None = None
    drain: float | None = None
    """Seconds until it is empty at this pace; infinite while it grows or stands still."""
    paused: str | None = None
    holds_dead_letters: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """A worker of a process, seen by its signs of life."""

    process: str
    host: str
    pid: int
    queue: str
    state: Literal["running", "paused", "reconnecting", "silent"]
    started_at: datetime
    seen_at: datetime
    version: str = ""
    concurrency: int = 1
    in_flight: int = 0
    handled: int = 0
    failed: int = 0
    handled_per_second: float | None = None
    p95: float | None = None
    paused: str | None = None
    blocked: str | None = None
    last_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitRow:
    """A circuit breaker of a process."""

    process: str
    host: str
    name: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """Something worth a line: a worker came or went, a connection, a circuit, dead letters."""

    at: datetime
    kind: str
    text: str
    level: Literal["info", "warning", "error"] = "info"
    queue: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """The four numbers, each with its past, oldest first."""

    in_per_second: tuple[Point, ...] = ()
    handled_per_second: tuple[Point, ...] = ()
    failure_ratio: tuple[Point, ...] = ()
    oldest_age: tuple[Point, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The broker, its queues and workers at one moment."""

    at: datetime
    status: Word
    reasons: tuple[str, ...] = ()
    """Why it is not healthy, a sentence each."""
    broker: str = ""
    url: str = ""
    """Without its password."""
    state: str = "connected"
    blocked: str | None = None
    last_error: str | None = None
    asked_in: float | None = None
    """Seconds the broker took to answer."""
    numbers: Numbers = field(default_factory=Numbers)
    queues: tuple[QueueRow, ...] = ()
    workers: tuple[WorkerRow, ...] | None = None
    """None where the broker has no place for signs of life."""
    circuits: tuple[CircuitRow, ...] = ()
    groups: tuple[FailureGroup, ...] = ()
    looked_at: int = 0
    """Dead letters that the groups are made of."""
    dead: int = 0
    """Dead letters there are."""
    happenings: tuple[Happening, ...] = ()
    """The last of them, newest first."""
    lacking: str | None = None
    """Why there may be queues that are not among these, and what to do about it."""
