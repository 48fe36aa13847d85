"""Messages that wait for their time: in topics of their own, from which they move on when it comes.

Each topic holds messages for a certain time at most. One that has longer to wait goes through the
same topic again, or through another, until it is due; it is never early.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from queuecraft.drivers.base import ACCEPTED, Delivery, Outgoing, Receipt, Rejected
from queuecraft.drivers.kafka.envelope import TO
from queuecraft.drivers.kafka.names import TIERS
from queuecraft.drivers.kafka.subscription import KafkaSubscription
from queuecraft.drivers.kafka.topology import Reach
from queuecraft.drivers.kafka.undelivered import REFUSALS, keep, pause
from queuecraft.drivers.kafka.waiting import Waiting, tier_of
from queuecraft.failpoints import failpoint
from queuecraft.model.errors import QueueError

if TYPE_CHECKING:
    from queuecraft.drivers.kafka.driver import KafkaDriver

log: Final = logging.getLogger("queuecraft")
AHEAD: Final = 5_000  # messages of a tier that are watched at a time
AHEAD_BYTES: Final = 32 * 2**20  # of their bodies, about
TAKEN: Final = 500  # at a time
BATCH: Final = 100  # moved on at a time
AT_RISK: Final = 200  # moved on and not committed: so many may come twice if we, or brokers, die
AGAIN: Final = 0.5  # seconds until what could not be sent is tried again


class Forwarder:
    """Moves on what is due, of all topics it follows."""

    def __init__(self, driver: KafkaDriver) -> None:
        self._driver = driver
        self._subscription: KafkaSubscription | None = None
        self._waiting = Waiting(AHEAD, AHEAD_BYTES)
        self._given_up = 0  # how often some of them have gone to others
        self._refused: dict[Delivery, int] = {}  # how often
        self._moving: asyncio.Task[None] | None = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def follow(self, topics: Mapping[str, Reach]) -> None:
        """See to these topics from now on."""
        if self._subscription is not None:
            await self._subscription.follow(topics)

    async def close(self) -> None:
        """Leave the rest to others. What was sent on is acked first, or it would come twice."""
        self._task.cancel()
        await asyncio.wait([self._task])
        if self._moving is not None:
            await asyncio.gather(self._moving, return_exceptions=True)
        await self._leave()

    async def _run(self) -> None:
        while self._driver.lost is None:
            try:
                await self._serve()
            except Exception as error:  # whatever it is: nobody else would begin again
                if self._driver.lost is None:
                    unknown = None if isinstance(error, QueueError) else error
                    text = "kafka: delayed messages wait a little longer: %s"
                    log.warning(text, error, exc_info=unknown)
                await asyncio.sleep(AGAIN)

    async def _serve(self) -> None:
        """Move on what is due, until something fails."""
        try:
            self._subscription = await self._driver.wait_on_tiers(TAKEN + AT_RISK)
            while self._driver.lost is None:
                await self._turn(self._subscription)
        except Exception:
            await self._leave()
            raise

    async def _leave(self) -> None:
        subscription, self._subscription = self._subscription, None
        self._waiting.clear()
        self._refused.clear()
        if subscription is not None:
            await subscription.close()

    async def _turn(self, subscription: KafkaSubscription) -> None:
        full = self._waiting.full
        spared = [topic for topic in subscription.topics if tier_of(topic) in full] if full else ()
        subscription.spare(spared)
        now, first = self._driver.clock.now(), self._waiting.next
        wait = 1.0 if first is None else min(1.0, max(0.0, first - now))
        taken = await subscription.receive(TAKEN, wait)
        # Whoever is given a partition of these may have it at once: there they wait as well.
        subscription.lay_aside(taken)
        for delivery in taken:
            self._waiting.put(delivery, self._until(delivery))
        if self._given_up != subscription.given_up:
            self._given_up = subscription.given_up
            self._waiting.forget()
            self._done([each for each in self._refused if each.token[0].leaving])
        due = self._waiting.take(self._driver.clock.now(), BATCH)
        if due:
            await subscription.committed(but=AT_RISK - len(due))
            due = subscription.take_up(due)
        if due:
            self._moving = asyncio.get_running_loop().create_task(self._move(subscription, due))
            await asyncio.shield(self._moving)

    async def _move(self, subscription: KafkaSubscription, due: list[Delivery]) -> None:
        messages = [_as_meant(each.sent) for each in due]
        failpoint("forward.before_send")
        receipts = await self._driver.pass_on(messages)
        failpoint("forward.after_send")
        gone = [each for each, receipt in zip(due, receipts, strict=True) if receipt is ACCEPTED]
        if gone:
            self._done(gone)
            await subscription.ack(gone)
        if len(gone) < len(due):
            stays = [pair for pair in zip(due, receipts, strict=True) if pair[1] is not ACCEPTED]
            await self._put_off(subscription, stays)

    async def _put_off(
        self, subscription: KafkaSubscription, stays: Sequence[tuple[Delivery, Receipt]]
    ) -> None:
        """What is refused again and again is kept elsewhere; the rest is tried again later."""
        refused: list[tuple[Delivery, Rejected]] = []
        for delivery, receipt in stays:
            error = getattr(receipt, "error", None)
            log.warning("kafka: delayed message %s stays: %s", delivery.sent.id, error)
            if isinstance(receipt, Rejected):  # its queue may be missing for a while
                self._refused[delivery] = self._refused.get(delivery, 0) + 1
                if self._refused[delivery] >= REFUSALS:
                    refused.append((delivery, receipt))
        kept: list[Delivery] = []
        if refused:
            letters = [(_as_meant(each.sent), receipt) for each, receipt in refused]
            failpoint("forward.before_keep")
            stored = await keep(self._driver, letters)
            failpoint("forward.after_keep")
            kept = [each for (each, _), it_is in zip(refused, stored, strict=True) if it_is]
            self._done(kept)
        if kept:
            await subscription.ack(kept)
        now, left = self._driver.clock.now(), [each for each, _ in stays if each not in kept]
        for delivery in left:
            self._waiting.put(delivery, now + pause(self._refused.get(delivery, 1)))
        subscription.lay_aside(left)

    def _done(self, deliveries: Iterable[Delivery]) -> None:
        for each in deliveries if self._refused else ():
            self._refused.pop(each, None)

    def _until(self, delivery: Delivery) -> float:
        """When it has to move on: when it is due, or when its time in this topic is over."""
        place, _, stored = delivery.token
        now = self._driver.clock.now()
        due = delivery.sent.due_at
        if due is None:
            return now
        # It has waited in the topic already: many may have been before it.
        since = now if stored is None else min(stored, now)
        return min(due, since + TIERS[tier_of(place.topic)])


def _as_meant(message: Outgoing) -> Outgoing:
    """The message as it was sent before it had to wait."""
    headers = dict(message.headers)
    to = headers.pop(TO, "")
    if isinstance(to, str) and to.startswith("q:"):
        return msgspec.structs.replace(message, queue=to[2:], headers=headers)
    exchange = to[2:] if isinstance(to, str) else ""
    return msgspec.structs.replace(message, exchange=exchange, headers=headers)
