"""A close look at a delivery before its handler runs: expired, looping, run before, unknown."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from queuecraft.clock import Clock
from queuecraft.codec.headers import ORIGINAL_ROUTING_KEY
from queuecraft.drivers.base import Delivery
from queuecraft.model.outcome import (
    CRASH_LOOP,
    EXPIRED,
    NO_HANDLER,
    Acked,
    Failure,
    after_failure,
    at_the_end,
)
from queuecraft.runtime.handler import Call
from queuecraft.runtime.replies import Replies, is_request
from queuecraft.runtime.router import Router
from queuecraft.runtime.settle import Settler
from queuecraft.runtime.slot import Slot

if TYPE_CHECKING:
    from queuecraft.runtime.consumer import Consumer

ALONE_FROM = 3  # redeliveries from which a message is handled with no neighbours, at the latest


class Admission:
    """Decides whether a delivery is handled at all, and by what."""

    def __init__(
        self, consumer: Consumer, router: Router[Call], clock: Clock, *, counted: bool
    ) -> None:
        self._consumer = consumer
        self._router = router
        self._clock = clock
        self._counted = counted  # the broker tells a redelivery from a new message
        self.replies: Replies | None = None

    async def examine(self, slot: Slot, delivery: Delivery, settler: Settler) -> Call | None:
        """The handler to run; None when the delivery was settled or put aside here instead."""
        consumer = self._consumer
        if self._handled_before(delivery, settler):
            return None
        attempt = consumer.attempt(delivery)
        policy = consumer.policy_of(delivery)
        reason = None
        limit = policy.max_redeliveries
        if limit is not None and delivery.redeliveries > limit:
            reason = CRASH_LOOP
        elif self._expired(delivery, policy.ttl):
            reason = EXPIRED
        if reason is not None:
            settler.settle(delivery, at_the_end(policy, reason), attempt)
            consumer.departures.depart([slot])
            return None
        call = self._find(delivery)
        if call is None:
            event = delivery.sent.routing_key
            what = f"no handler for event {event!r} in queue {delivery.queue!r}"
            if is_request(delivery.sent):  # while it lives, a newer worker may come to answer it
                policy = replace(policy, retry=consumer.policy.retry)
            outcome = after_failure(
                policy, attempt, NO_HANDLER, Failure("NoHandler", what), chance=self._clock.chance()
            )
            slot.again = consumer.fail(delivery, settler, outcome, attempt)
            consumer.departures.depart([slot])
            return None
        if self._suspect(delivery) and not await consumer.be_alone(slot, settler):
            await consumer.departures.put_back(slot, delivery, slot.settler or settler)
            return None
        if policy.ack_timeout is not None:
            consumer.deadlines.start(slot, delivery, policy.ack_timeout)
        if self.replies is not None and is_request(delivery.sent):
            return self.replies.answers.get(call, call)
        return call

    def joins(self, delivery: Delivery, call: Call) -> bool:
        """Whether a delivery may be handled together with others, by the same handler. One that
        needs a closer look waits for its own turn."""
        consumer, sent = self._consumer, delivery.sent
        if (self._router.known.get(sent.routing_key) or self._find(delivery)) is not call:
            return False
        if delivery.redeliveries and self._suspect(delivery):
            return False
        if consumer.wary and delivery in consumer.orphans:
            return False
        if sent.reply_to is not None and is_request(sent):
            return False
        ttl = consumer.policy.ttl
        return (ttl is None and sent.expires_at is None) or not self._expired(delivery, ttl)

    def _suspect(self, delivery: Delivery) -> bool:
        """Before it is condemned, it has to be seen alone once: its neighbours may be innocent."""
        limit = self._consumer.policy.max_redeliveries
        alone_from = ALONE_FROM if limit is None else min(ALONE_FROM, max(limit, 1))
        return delivery.redeliveries >= alone_from

    def _handled_before(self, delivery: Delivery, settler: Settler) -> bool:
        """Whether a run of this message on a lost connection stands for this delivery too, or
        may still come to do so."""
        consumer, orphans = self._consumer, self._consumer.orphans
        if not orphans:
            consumer.wary = False
            return False
        if self._counted and not delivery.redeliveries:
            return False  # another message with the same id
        if orphans.wait(delivery, partial(consumer.departures.run_ended, delivery, settler)):
            consumer.intake.wait_behind(delivery)
            return True
        if orphans.adopt(delivery):
            settler.settle(delivery, Acked(), 1)
            consumer.intake.leave(delivery)
            return True
        return False

    def _expired(self, delivery: Delivery, ttl: float | None) -> bool:
        sent = delivery.sent
        now = self._clock.now()
        if sent.expires_at is not None and sent.expires_at <= now:
            return True
        since = sent.timestamp if sent.due_at is None else sent.due_at
        return ttl is not None and since is not None and since + ttl <= now

    def _find(self, delivery: Delivery) -> Call | None:
        sent = delivery.sent
        original = sent.headers.get(ORIGINAL_ROUTING_KEY)
        if isinstance(original, str):  # a dead letter goes by the event it was
            return self._router.find(original)
        return self._router.find(sent.routing_key) or (
            # Sent to the queue by name: a worker with one handler need not name it again.
            self._router.only if sent.routing_key in ("", delivery.queue) else None
        )
