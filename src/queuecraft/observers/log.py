"""Facts as log lines: structured, escaped, and quiet while all goes well."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from queuecraft.drivers.base import Delivery
from queuecraft.model.outcome import INVALID_PAYLOAD, Failure
from queuecraft.model.printable import printable
from queuecraft.observers.formatters import ConsoleFormatter, JsonFormatter
from queuecraft.observers.log_context import LogContext, MessageFilter, trace_in
from queuecraft.runtime.facts import (
    CircuitChanged,
    ConnectionStateChanged,
    Facts,
    MessageDeadLettered,
    MessageDropped,
    MessageExpired,
    MessageFailed,
    MessageRetried,
    Reconnected,
    ReconnectFailed,
    Reconnecting,
    Shutdown,
    WorkerPaused,
    WorkerResumed,
    WorkerStarted,
    WorkerStopped,
)

__all__ = [
    "ConsoleFormatter",
    "JsonFormatter",
    "LogContext",
    "LogObserver",
    "MessageFilter",
    "printable",
]


def _indented(stack: str) -> str:
    """A stack below its line; no line of it can be taken for one of the log's own."""
    return "".join(f"\n  {printable(line)}" for line in stack.rstrip().split("\n"))


class LogObserver:
    """Writes what a person on call wants to know to a logger; successes are not among it."""

    def __init__(self, logger: logging.Logger) -> None:
        self._log = logger

    def attach(self, facts: Facts) -> None:
        """Listen from now on."""
        facts.observe(MessageFailed, self.failed)
        facts.observe(MessageRetried, self.retried)
        facts.observe(MessageDeadLettered, self.dead_lettered)
        facts.observe(MessageDropped, self.dropped)
        facts.observe(MessageExpired, self.expired)
        facts.observe(ConnectionStateChanged, self.state_changed)
        facts.observe(CircuitChanged, self.circuit_changed)
        facts.observe(Reconnecting, self.reconnecting)
        facts.observe(Reconnected, self.reconnected)
        facts.observe(ReconnectFailed, self.reconnect_failed)
        facts.observe(WorkerStarted, self.started)
        facts.observe(WorkerStopped, self.stopped)
        facts.observe(WorkerPaused, self.paused)
        facts.observe(WorkerResumed, self.resumed)
        facts.observe(Shutdown, self.shut_down)

    def failed(self, fact: MessageFailed) -> None:
        """A handler failed: with the whole stack, at error level."""
        if fact.reason == INVALID_PAYLOAD:
            return  # no handler saw it; its end, which comes next, tells all there is
        error = "" if fact.failure is None else f": {fact.failure.error_type}: {fact.failure.error}"
        self._message(
            logging.ERROR,
            f"attempt {fact.attempt} failed ({fact.reason}){error}",
            fact.worker,
            fact.delivery,
            fact.attempt,
            fact.failure,
        )

    def retried(self, fact: MessageRetried) -> None:
        """It will be tried again; why was logged when it failed."""
        self._message(
            logging.INFO,
            f"comes again in {fact.delay:.3g} s, after attempt {fact.attempt}",
            fact.worker,
            fact.delivery,
            fact.attempt,
        )

    def dead_lettered(self, fact: MessageDeadLettered) -> None:
        """It is kept for a person to look at."""
        text = f"dead-lettered ({fact.reason}) after attempt {fact.attempt}"
        self._end(text, fact)

    def dropped(self, fact: MessageDropped) -> None:
        """It is gone."""
        text = f"dropped ({fact.reason}) after attempt {fact.attempt}; dead letters are off"
        self._end(text, fact)

    def expired(self, fact: MessageExpired) -> None:
        """It came too late."""
        self._message(logging.WARNING, "expired unhandled", fact.worker, fact.delivery, None)

    def state_changed(self, fact: ConnectionStateChanged) -> None:
        """The connection is in another state. Worth a person's while are that it stands, and that
        it broke; when it is given up, `reconnect_failed` or an exception says so."""
        level = logging.WARNING if fact.new == "reconnecting" else logging.DEBUG
        if (fact.old, fact.new) == ("connecting", "connected"):
            level = logging.INFO
        why = "" if fact.error is None else f": {fact.error}"
        self._say(level, f"connection {fact.old} → {fact.new}{why}", state=fact.new)

    def circuit_changed(self, fact: CircuitChanged) -> None:
        """A breaker or an outage guard opens, tries, or closes."""
        level = logging.WARNING if fact.state == "open" else logging.INFO
        why = "" if fact.error is None else f": {fact.error}"
        self._say(level, f"{fact.name} is {fact.state.replace('_', ' ')}{why}", state=fact.state)

    def reconnecting(self, fact: Reconnecting) -> None:
        """Not yet."""
        text = f"connecting failed ({fact.attempt}), again in {fact.delay:.1f} s: {fact.error}"
        self._say(logging.WARNING, text, attempt=fact.attempt)

    def reconnected(self, fact: Reconnected) -> None:
        """Back again."""
        self._say(logging.INFO, f"reconnected after {fact.downtime:.1f} s", attempt=fact.attempt)

    def reconnect_failed(self, fact: ReconnectFailed) -> None:
        """For good."""
        tries = "1 attempt" if fact.attempts == 1 else f"{fact.attempts} attempts"
        what = f"gave up connecting after {tries}" if fact.attempts else "not reconnecting"
        text = f"{what}: {fact.error}"
        self._say(logging.ERROR, text, attempts=fact.attempts)

    def started(self, fact: WorkerStarted) -> None:
        """A worker is at work."""
        self._say(logging.INFO, f"worker {fact.worker} started", queue=fact.queue)

    def stopped(self, fact: WorkerStopped) -> None:
        """A worker has ended."""
        self._say(logging.INFO, f"worker {fact.worker} stopped", queue=fact.queue)

    def paused(self, fact: WorkerPaused) -> None:
        """A worker waits."""
        text = f"worker {fact.worker} paused: {fact.reason}"
        self._say(logging.WARNING, text, queue=fact.queue)

    def resumed(self, fact: WorkerResumed) -> None:
        """A worker goes on."""
        self._say(logging.INFO, f"worker {fact.worker} resumed", queue=fact.queue)

    def shut_down(self, fact: Shutdown) -> None:
        """The end."""
        self._say(logging.INFO, "shut down")

    def _end(self, text: str, fact: MessageDeadLettered | MessageDropped) -> None:
        if fact.reason == INVALID_PAYLOAD and fact.failure is not None:
            text += f": {fact.failure.error_type}: {fact.failure.error}"
        # Any other error was logged, with its stack, when it failed.
        failure = None if fact.failure is None else replace(fact.failure, traceback="")
        self._message(logging.ERROR, text, fact.worker, fact.delivery, fact.attempt, failure)

    def _message(
        self,
        level: int,
        text: str,
        worker: str,
        delivery: Delivery,
        attempt: int | None,
        failure: Failure | None = None,
    ) -> None:
        sent = delivery.sent
        fields: dict[str, Any] = {
            "queue": delivery.queue,
            "consumer": worker,
            "event": sent.routing_key,
            "message_id": sent.id,
            "correlation_id": sent.correlation_id,
            "trace_id": trace_in(sent.headers)[0],
            "attempt": attempt,
        }
        if failure is not None:
            fields["error"] = f"{failure.error_type}: {failure.error}"
            fields["stack"] = failure.traceback or None
        self._say(level, f"{delivery.queue}: message {sent.id} {text}", **fields)

    def _say(self, level: int, text: str, **fields: Any) -> None:
        if self._log.isEnabledFor(level):
            present = {name: value for name, value in fields.items() if value is not None}
            stack = _indented(present["stack"]) if "stack" in present else ""
            self._log.log(level, "%s%s", printable(text), stack, extra={"queuecraft": present})
