"""Ack timeouts: one timer for all messages of a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuecraft.clock import Clock, Timer
from queuecraft.drivers.base import Delivery
from queuecraft.model.outcome import ACK_TIMEOUT, Failure, after_failure
from queuecraft.runtime.settle import Settler
from queuecraft.runtime.slot import Slot

if TYPE_CHECKING:
    from queuecraft.runtime.consumer import Consumer

GRACE = 10.0  # seconds a handler may take to end once it was cancelled


class Deadlines:
    """Watches how long handlers take; one that takes too long has failed its message."""

    def __init__(self, consumer: Consumer, clock: Clock) -> None:
        self._consumer = consumer
        self._clock = clock
        self._timer: Timer | None = None
        self._due = float("inf")
        self._late: set[Delivery] = set()  # whose handlers still run

    def is_late(self, delivery: Delivery) -> bool:
        """Whether its time has passed while its handler runs."""
        return delivery in self._late

    def ended(self, delivery: Delivery) -> None:
        """The handler of this delivery has ended."""
        self._late.discard(delivery)

    def start(self, slot: Slot, delivery: Delivery, seconds: float) -> None:
        """The handler of this delivery has so many seconds from now."""
        slot.timed = delivery
        slot.deadline = self._clock.monotonic() + seconds
        if slot.deadline < self._due:
            self._arm(slot.deadline)

    def extend(self, slot: Slot, delivery: Delivery, seconds: float) -> None:
        """The same, for a delivery that is being timed and still open."""
        first = slot.leader.delivery
        if slot.open and slot.delivery is delivery and first and slot.leader.timed is first:
            self.start(slot.leader, first, seconds)

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
        timed = [slot for slot in self._consumer.slots if slot.timed is slot.delivery is not None]
        for slot in timed:
            if slot.deadline <= now:
                self._lapse(slot, now)
        later = [slot.deadline for slot in timed if slot.deadline > now]
        if later:
            self._arm(min(later))

    def _lapse(self, slot: Slot, now: float) -> None:
        if slot.lapsed:
            self._consumer.abandon(slot)
            return
        late = [each for each in slot.all if each.open]
        if late:
            slot.deadline = now + GRACE
            for each in late:
                each.lapsed = True
                assert each.delivery is not None
                assert each.settler is not None
                self._late.add(each.delivery)
                self._settle(each, each.delivery, each.settler)
            assert slot.delivery is not None
            slot.lapsed = True  # also where the first of a batch was settled by hand
            self._late.add(slot.delivery)
            if slot.task is not None:
                slot.task.cancel()

    def _settle(self, slot: Slot, delivery: Delivery, settler: Settler) -> None:
        consumer = self._consumer
        if settler.void:  # the broker has it again, so there is nothing to be settled here
            consumer.time_out_lost(delivery)
            return
        attempt = consumer.attempt(delivery)
        policy = consumer.policy_of(delivery)
        failure = Failure("AckTimeout", f"not handled within {policy.ack_timeout:g} s")
        outcome = after_failure(policy, attempt, ACK_TIMEOUT, failure, chance=self._clock.chance())
        slot.again = consumer.time_out(delivery, settler, outcome, attempt)
