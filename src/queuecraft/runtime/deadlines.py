"""Ack timeouts: one timer for all messages of a worker."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from queuecraft.clock import Clock, Timer
from queuecraft.model.outcome import ACK_TIMEOUT, Failure, after_failure
from queuecraft.runtime.slot import Slot

if TYPE_CHECKING:
    from queuecraft.runtime.consumer import Consumer


class Deadlines:
    """Watches how long handlers take; one that takes too long has failed its message."""

    def __init__(self, consumer: Consumer, clock: Clock) -> None:
        self._consumer = consumer
        self._clock = clock
        self._timer: Timer | None = None
        self._due = float("inf")

    def start(self, slot: Slot, seconds: float) -> None:
        """The handler of this slot has so many seconds from now."""
        slot.deadline = self._clock.monotonic() + seconds
        if slot.deadline < self._due:
            self._arm(slot.deadline)

    def close(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, due: float) -> None:
        self.close()
        self._due = due
        self._timer = self._clock.call_later(due - self._clock.monotonic(), self._check)

    def _check(self) -> None:
        self._timer = None
        self._due = float("inf")
        now = self._clock.monotonic()
        for slot in self._consumer.slots:
            if slot.deadline is not None and slot.delivery is not None and not slot.lapsed:
                if slot.deadline <= now:
                    self._lapse(slot)
                else:
                    self._due = min(self._due, slot.deadline)
        if self._due < float("inf"):
            self._arm(self._due)

    def _lapse(self, slot: Slot) -> None:
        consumer, delivery, settler = self._consumer, slot.delivery, slot.settler
        if delivery is None or settler is None or settler.void or slot.by_hand:
            return
        slot.lapsed = True
        attempt = consumer.attempt(delivery)
        policy = consumer.policy_of(delivery)
        failure = Failure("AckTimeout", f"not handled within {policy.ack_timeout:g} s")
        outcome = after_failure(policy, attempt, ACK_TIMEOUT, failure, chance=random.random())
        slot.waits = consumer.timed_out(delivery, settler, outcome, attempt)
        if slot.task is not None:
            slot.task.cancel()
