"""Successes and failures, counted and told to whoever observes them."""

from __future__ import annotations

from collections.abc import Sequence

from queuecraft.clock import Clock
from queuecraft.drivers.base import Delivery
from queuecraft.model.outcome import Acked, Outcome, Postponed, Released, Retried
from queuecraft.runtime.counters import Counters
from queuecraft.runtime.facts import (
    Facts,
    MessageFailed,
    MessagePostponed,
    MessageRetried,
    MessagesSucceeded,
    WorkerPaused,
    WorkerResumed,
)


class Tally:
    """The account of one consumer, but for what its settler writes down on the way."""

    def __init__(
        self, worker: str, queue: str, counters: Counters, facts: Facts, clock: Clock
    ) -> None:
        self._worker = worker
        self._queue = queue
        self._counters = counters
        self._facts = facts
        self._clock = clock

    def succeeded(self, delivery: Delivery, durations: Sequence[float] = ()) -> None:
        """A message was handled, and its ack is somebody else's business."""
        self._counters.succeeded += 1
        self._counters.last_success = self._clock.now()
        if self._facts.wants(MessagesSucceeded):
            self._facts.emit(
                MessagesSucceeded(worker=self._worker, deliveries=[delivery], durations=durations)
            )

    def failed(
        self, delivery: Delivery, outcome: Outcome, attempt: int, took: float | None
    ) -> None:
        """A delivery failed, whatever becomes of it."""
        self._counters.failed += 1
        if self._facts.wants(MessageFailed) and not isinstance(outcome, Acked | Released):
            self._facts.emit(
                MessageFailed(
                    worker=self._worker,
                    delivery=delivery,
                    attempt=attempt,
                    reason=outcome.reason,
                    failure=outcome.failure,
                    duration=took,
                )
            )

    def retried(self, delivery: Delivery, outcome: Retried, attempt: int) -> None:
        """It waits in its lane for another try."""
        self._counters.retried += 1
        if self._facts.wants(MessageRetried):
            self._facts.emit(
                MessageRetried(
                    worker=self._worker,
                    delivery=delivery,
                    attempt=attempt,
                    reason=outcome.reason,
                    delay=outcome.delay,
                    failure=outcome.failure,
                )
            )

    def postponed(self, delivery: Delivery, asked: Postponed) -> None:
        """It was not handled now, and comes again later."""
        self._counters.postponed += 1
        if self._facts.wants(MessagePostponed):
            self._facts.emit(
                MessagePostponed(
                    worker=self._worker,
                    delivery=delivery,
                    delay=asked.seconds,
                    reason=asked.reason,
                )
            )

    def timed_out(self) -> None:
        """A handler took too long."""
        self._counters.ack_timeouts += 1

    def paused(self, reason: str) -> None:
        """Nothing more is received."""
        self._facts.emit(WorkerPaused(worker=self._worker, queue=self._queue, reason=reason))

    def resumed(self) -> None:
        """Messages are received again."""
        self._facts.emit(WorkerResumed(worker=self._worker, queue=self._queue))
