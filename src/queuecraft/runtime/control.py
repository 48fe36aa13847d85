"""Settling by hand: what `message.ack()` and its siblings do."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any

from queuecraft.drivers.base import Delivery
from queuecraft.model.errors import AlreadySettled, ConfigError
from queuecraft.model.message import Control
from queuecraft.model.outcome import NACK, REQUEUE, Acked, Outcome, after_failure, at_the_end
from queuecraft.model.policy import Policy
from queuecraft.runtime.slot import Slot

if TYPE_CHECKING:
    from queuecraft.runtime.consumer import Consumer


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
            lambda policy, attempt: after_failure(policy, attempt, reason, chance=random.random()),
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
                policy, attempt, NACK, delay=delay, chance=random.random()
            ),
        )

    def dead_letter(self, delivery: Delivery, reason: str) -> Awaitable[None]:
        return self._settle(delivery, lambda policy, attempt: at_the_end(policy, reason))

    def extend(self, delivery: Delivery, seconds: float) -> None:
        if not 0 < seconds < float("inf"):
            raise ConfigError(f"extend({seconds!r}): expected seconds above 0")
        slot = self._slot(delivery)
        assert self._consumer is not None
        assert self._loop is not None
        if threading.get_ident() == self._thread:
            self._consumer.deadlines.start(slot, seconds)
        else:
            self._loop.call_soon_threadsafe(self._consumer.deadlines.start, slot, seconds)

    def _slot(self, delivery: Delivery) -> Slot:
        slots = () if self._consumer is None else self._consumer.slots
        for slot in slots:
            if slot.delivery is delivery and not slot.by_hand and not slot.lapsed:
                return slot
        raise AlreadySettled(
            "the message is settled already: a handler may settle it once, before it returns and "
            "before its ack timeout",
            queue=delivery.queue,
            message_id=delivery.sent.id,
        )

    def _settle(
        self, delivery: Delivery, decide: Callable[[Policy, int], Outcome]
    ) -> Awaitable[None]:
        slot = self._slot(delivery)
        slot.by_hand = True
        assert self._loop is not None
        if threading.get_ident() == self._thread:
            return self._apply(slot, delivery, decide)
        self._loop.call_soon_threadsafe(self._apply, slot, delivery, decide)
        return _Noted()

    def _apply(
        self, slot: Slot, delivery: Delivery, decide: Callable[[Policy, int], Outcome]
    ) -> Awaitable[None]:
        consumer, settler = self._consumer, slot.settler
        assert consumer is not None
        assert settler is not None
        attempt = consumer.attempt(delivery)
        outcome = decide(consumer.policy_of(delivery), attempt)
        if isinstance(outcome, Acked):
            consumer.succeed(delivery, settler)
        elif not settler.void:
            slot.waits = consumer.fail(delivery, settler, outcome, attempt)
        return asyncio.shield(consumer.errand(consumer.flush_now(settler)))
