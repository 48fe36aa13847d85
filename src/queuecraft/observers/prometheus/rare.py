"""What is counted of the connection, the loop and delayed messages, by their facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

from queuecraft.observers.prometheus.families import Families
from queuecraft.runtime.facts import (
    DelayedDelivered,
    DelayedRefused,
    Disconnected,
    Fact,
    LoopBlocked,
    Reconnected,
    Reconnecting,
)

F = TypeVar("F", bound=Fact)


class Observed(Protocol):
    """Who tells facts."""

    def observe(self, kind: type[F], observer: Callable[[F], object]) -> Callable[[], None]: ...


class RareFacts:
    """Facts that are few, each a number of its own."""

    def __init__(self) -> None:
        self._disconnects = 0
        self._reconnects = 0
        self._failures = 0
        self._downtime = 0.0
        self._blocked = 0
        self._delivered = 0
        self._refused = 0

    def observe(self, source: Observed) -> list[Callable[[], None]]:
        """Count from now on; what stops it again."""
        return [
            source.observe(Disconnected, self._disconnected),
            source.observe(Reconnected, self._reconnected),
            source.observe(Reconnecting, self._failed),
            source.observe(LoopBlocked, self._block),
            source.observe(DelayedDelivered, self._deliver),
            source.observe(DelayedRefused, self._refuse),
        ]

    def shown(self, families: Families) -> Iterator[Any]:
        """All of them."""
        for name, text, value in (
            ("connection_lost", "Times the connection was lost.", self._disconnects),
            ("reconnects", "Times it came back.", self._reconnects),
            ("reconnect_failures", "Tries to bring it back that failed.", self._failures),
            ("connection_downtime_seconds", "How long it was away in all.", self._downtime),
            ("loop_blocked", "Times a handler kept the event loop from turning.", self._blocked),
            ("delayed_delivered", "Delayed messages this process delivered.", self._delivered),
            ("delayed_refused", "Deliveries of delayed messages that failed.", self._refused),
        ):
            yield families.counter(name, text, (), [((), value)])

    def _disconnected(self, fact: Disconnected) -> None:
        self._disconnects += 1

    def _reconnected(self, fact: Reconnected) -> None:
        self._reconnects += 1
        self._downtime += fact.downtime

    def _failed(self, fact: Reconnecting) -> None:
        self._failures += 1

    def _block(self, fact: LoopBlocked) -> None:
        self._blocked += 1

    def _deliver(self, fact: DelayedDelivered) -> None:
        self._delivered += len(fact.messages)

    def _refuse(self, fact: DelayedRefused) -> None:
        self._refused += fact.count
