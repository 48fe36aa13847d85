"""Counts that are always kept, cheaply: what was sent, handled, failed, and how long it took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(slots=True)
class Counters:
    """The counts of one queue; plain numbers that its worker raises.

    >>> counters = Counters()
    >>> counters.received += 2
    >>> counters.received
    2
    """

    received: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    postponed: int = 0
    dead_lettered: int = 0
    expired: int = 0
    ack_timeouts: int = 0
    dropped: int = 0
    stale: int = 0
    busy_seconds: float = 0.0
    longest_seconds: float = 0.0
    last_success: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Counts since the start. `messages_failed` counts every failed delivery, retried or not.

    >>> Metrics(messages_sent=3).messages_sent
    3
    """

    messages_sent: int = 0
    messages_received: int = 0
    messages_succeeded: int = 0
    messages_failed: int = 0
    messages_retried: int = 0
    messages_postponed: int = 0
    messages_dead_lettered: int = 0
    messages_expired: int = 0
    messages_dropped: int = 0
    ack_timeouts: int = 0
    in_flight: int = 0
    handler_seconds_total: float = 0.0
    handler_seconds_max: float = 0.0
    journal_written: int = 0
    journal_dropped: int = 0
    queues: Mapping[str, Metrics] = field(default_factory=dict)

    @classmethod
    def of(cls, counters: Counters, in_flight: int = 0) -> Metrics:
        """The counts of one queue as they are now."""
        return cls(
            messages_received=counters.received,
            messages_succeeded=counters.succeeded,
            messages_failed=counters.failed,
            messages_retried=counters.retried,
            messages_postponed=counters.postponed,
            messages_dead_lettered=counters.dead_lettered,
            messages_expired=counters.expired,
            messages_dropped=counters.dropped,
            ack_timeouts=counters.ack_timeouts,
            in_flight=in_flight,
            handler_seconds_total=counters.busy_seconds,
            handler_seconds_max=counters.longest_seconds,
        )

    @classmethod
    def total(cls, sent: int, queues: Mapping[str, Metrics]) -> Metrics:
        """All queues together."""

        names = [each.name for each in fields(cls) if each.name not in ("messages_sent", "queues")]
        sums: Any = {
            name: (max if name.endswith("_max") else sum)(
                [0, *(getattr(each, name) for each in queues.values())]
            )
            for name in names
        }
        return cls(messages_sent=sent, queues=dict(queues), **sums)
