"""Settling by hand: what `message.ack()` and its siblings do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, TypeAlias

from queuecraft.drivers.base import Delivery
from queuecraft.model.errors import AlreadySettled, ConfigError
from queuecraft.model.message import Control
from queuecraft.model.outcome import NACK, REQUEUE, Acked, Outcome, after_failure, at_the_end
from queuecraft.model.policy import Policy
from queuecraft.runtime.slot import Slot

if TYPE_CHECKING:
    from queuecraft.runtime.consumer import Consumer

Decide: TypeAlias = Callable[[Policy, int], Outcome]
"""What becomes of a message, given the policy for it and the number of its attempt."""


class _Noted:
    """What a thread gets: the decision stands, there is nothing to wait for."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


class ByHand(Control):
    """Gives handlers the say over their message. Works from threads as well."""

    def __init__(self) -> None:
        self._consumer: Consumer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._lock = threading.Lock()
        self._noted: set[Delivery] = set()  # decided by a thread, on its way to the loop

    def serve(self, consumer: Consumer) -> None:
        """Act for this consumer, in the running loop."""
        self._consumer = consumer
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def attempt(self, delivery: Delivery) -> int:
        return 1 if self._consumer is None else self._consumer.attempt(delivery)

    def ack(self, delivery: Delivery) -> Awaitable[None]:
        return self._settle(delivery, lambda policy, attempt: Acked())

    def nack(self, delivery: Delivery, requeue: bool, reason: str) -> Awaitable[None]:
        if not requeue:
            return self._settle(delivery, lambda policy, attempt: at_the_end(policy, reason))
        return self._settle(
            delivery,
            lambda policy, attempt: after_failure(policy, attempt, reason, chance=self._chance()),
        )

    def requeue(self, delivery: Delivery) -> Awaitable[None]:
        return self._settle(
            delivery, lambda policy, attempt: after_failure(policy, attempt, REQUEUE, delay=0.0)
        )

    def retry(self, delivery: Delivery, delay: float | None) -> Awaitable[None]:
        if delay is not None and not 0 <= delay < float("inf"):
            raise ConfigError(f"retry(delay={delay!r}): expected seconds from 0 on")
        return self._settle(
            delivery,
            lambda policy, attempt: after_failure(
                policy, attempt, NACK, delay=delay, chance=self._chance()
            ),
        )

    def dead_letter(self, delivery: Delivery, reason: str) -> Awaitable[None]:
        return self._settle(delivery, lambda policy, attempt: at_the_end(policy, reason))

    def extend(self, delivery: Delivery, seconds: float) -> None:
        if not 0 < seconds < float("inf"):
            raise ConfigError(f"extend({seconds!r}): expected seconds above 0")
        slot = self._slot(delivery)
        assert self._consumer is not None
        deadlines = self._consumer.deadlines
        if threading.get_ident() == self._thread:
            deadlines.extend(slot, delivery, seconds)
        else:
            self._tell_loop(delivery, deadlines.extend, slot, delivery, seconds)

    def lapsed(self, delivery: Delivery) -> bool:
        return self._consumer is not None and self._consumer.deadlines.is_late(delivery)

    def _chance(self) -> float:
        return 0.5 if self._consumer is None else self._consumer.clock.chance()

    # -- inside --------------------------------------------------------------------------------

    def _slot(self, delivery: Delivery) -> Slot:
        slot = None if self._consumer is None else self._consumer.slot_of(delivery)
        if slot is None or not slot.open:
            raise _settled(delivery)
        return slot

    def _settle(self, delivery: Delivery, decide: Decide) -> Awaitable[None]:
        slot = self._slot(delivery)
        if threading.get_ident() == self._thread:
            return self._apply(slot, delivery, decide)
        with self._lock:
            if delivery in self._noted:
                raise _settled(delivery)
            self._noted.add(delivery)
        self._tell_loop(delivery, self._apply_noted, delivery, decide)
        return _Noted()

    def _tell_loop(self, delivery: Delivery, call: Callable[..., Any], *arguments: Any) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:  # the loop is closed, and the message long given back
            raise _settled(delivery) from None

    def _apply_noted(self, delivery: Delivery, decide: Decide) -> None:
        self._noted.discard(delivery)
        assert self._consumer is not None
        try:
            _ = self._apply(self._slot(delivery), delivery, decide)
        except AlreadySettled as error:  # its handler ended, or was late, in this very moment
            self._consumer.log.warning("a thread came too late: %s", error)

    def _apply(self, slot: Slot, delivery: Delivery, decide: Decide) -> Awaitable[None]:
        consumer, settler = self._consumer, slot.settler
        assert consumer is not None
        assert settler is not None
        slot.by_hand = True
        attempt = consumer.attempt(delivery)
        outcome = decide(consumer.policy_of(delivery), attempt)
        if isinstance(outcome, Acked):
            consumer.succeed(delivery, settler)
            # Not the moves of others: a broker that takes no messages would hold up this handler.
            telling = consumer.flush_acks(settler)
        else:
            if not settler.void:
                slot.again = consumer.fail(delivery, settler, outcome, attempt)
            telling = consumer.flush_now(settler)
        return asyncio.shield(consumer.errands.start(telling))


def _settled(delivery: Delivery) -> AlreadySettled:
    return AlreadySettled(
        "the message is settled already: a handler may settle it once, before it returns and "
        "before its ack timeout",
        queue=delivery.queue,
        message_id=delivery.sent.id,
    )
