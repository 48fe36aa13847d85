"""How a QueueCraft is: whether it is connected and well, and what it has done."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from queuecraft.middleware.breaker import Breaker
from queuecraft.observers.journal import JournalObserver
from queuecraft.runtime.counters import Metrics
from queuecraft.runtime.engine import Engine
from queuecraft.runtime.facts import ConnectionState
from queuecraft.runtime.health import Health
from queuecraft.runtime.roster import Roster


class Vitals:
    """Reads what the parts know of themselves; asks no broker."""

    def __init__(
        self,
        engine: Engine,
        roster: Roster,
        breaker: Breaker | None,
        journal: JournalObserver | None,
    ) -> None:
        self._engine = engine
        self._roster = roster
        self._breaker = breaker
        self._journal = journal

    @property
    def connection_state(self) -> ConnectionState:
        """That of the connection, unless the breaker lets nothing through to it."""
        state = self._engine.connection.state
        if self._breaker is None or state in ("closing", "closed"):
            return state
        return "circuit_open" if self._breaker.state == "open" else state

    def health(self) -> Health:
        """Healthy while connected and consuming; otherwise what is wrong, and since when."""
        engine, roster, connection = self._engine, self._roster, self._engine.connection
        paused = {each.queue_name: why for each in roster if (why := each.standing) is not None}
        times = [engine.publisher.last_success, *(w.counters.last_success for w in roster)]
        last = max((time for time in times if time is not None), default=None)
        blocked, trouble = connection.blocked, engine.trouble
        healthy = connection.state == "connected" and not (paused or blocked or trouble)
        return Health(
            status="healthy" if healthy else "unhealthy",
            connection_state=self.connection_state,
            last_message_at=_moment(last),
            last_error=trouble or connection.last_error,
            disconnected_at=None if connection.current else _moment(connection.lost_at),
            blocked=blocked,
            paused=paused,
        )

    def metrics(self) -> Metrics:
        """Counts since the start, in all and for each queue."""
        queues: dict[str, Metrics] = {}
        for worker in self._roster.named:
            name = worker.queue_name
            counts = {"before": queues.get(name, Metrics())}  # workers may share a queue
            counts["its own"] = Metrics.of(worker.counters, worker.in_flight)
            queues[name] = replace(Metrics.total(0, counts), queues={})
        total = Metrics.total(self._engine.publisher.sent, queues)
        if self._journal is None:
            return total
        written, dropped = self._journal.written, self._journal.dropped
        return replace(total, journal_written=written, journal_dropped=dropped)


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
