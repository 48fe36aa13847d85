"""Messages that wait for their time: in topics of their own, from which they move on when it comes.

Each topic holds messages for a certain time at most. One that has longer to wait goes through the
same topic again, or through another, until it is due; it is never early.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING, Final

import msgspec

from queuecraft.drivers.base import ACCEPTED, Delivery, Outgoing
from queuecraft.drivers.kafka.envelope import TO
from queuecraft.drivers.kafka.names import TIERS
from queuecraft.drivers.kafka.subscription import KafkaSubscription
from queuecraft.drivers.kafka.topology import Reach
from queuecraft.failpoints import failpoint
from queuecraft.model.errors import QueueError

if TYPE_CHECKING:
    from queuecraft.drivers.kafka.driver import KafkaDriver

log: Final = logging.getLogger("queuecraft")
AHEAD: Final = 5_000  # messages that are watched at a time
TAKEN: Final = 500
BATCH: Final = 100  # moved on at a time
AT_RISK: Final = 200  # moved on and not committed: so many may come twice if we, or brokers, die
AGAIN: Final = 0.5  # seconds until what could not be sent is tried again


class Forwarder:
    """Moves on what is due, of all topics it follows."""

    def __init__(self, driver: KafkaDriver) -> None:
        self._driver = driver
        self._subscription: KafkaSubscription | None = None
        self._waiting: list[tuple[float, int, Delivery]] = []
        self._number = count()
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
            self._subscription = await self._driver.wait_on_tiers()
            while self._driver.lost is None:
                await self._turn(self._subscription)
        except Exception:
            await self._leave()
            raise

    async def _leave(self) -> None:
        subscription, self._subscription = self._subscription, None
        self._waiting.clear()
        if subscription is not None:
            await subscription.close()

    async def _turn(self, subscription: KafkaSubscription) -> None:
        now = self._driver.clock.now()
        wait = min(1.0, max(0.0, self._waiting[0][0] - now)) if self._waiting else 1.0
        for delivery in await subscription.receive(TAKEN, wait):
            heapq.heappush(self._waiting, (self._until(delivery), next(self._number), delivery))
        now = self._driver.clock.now()
        due: list[Delivery] = []
        while self._waiting and self._waiting[0][0] <= now and len(due) < BATCH:
            due.append(heapq.heappop(self._waiting)[2])
        if due:
            await subscription.committed(but=AT_RISK - len(due))
            self._moving = asyncio.get_running_loop().create_task(self._move(subscription, due))
            await asyncio.shield(self._moving)

    async def _move(self, subscription: KafkaSubscription, due: list[Delivery]) -> None:
        messages = [_as_meant(each.sent) for each in due]
        failpoint("forward.before_send")
        receipts = await self._driver.pass_on(messages)
        failpoint("forward.after_send")
        gone: list[Delivery] = []
        for delivery, receipt in zip(due, receipts, strict=True):
            if receipt is ACCEPTED:
                gone.append(delivery)
            else:  # its queue may be missing for a while
                error = getattr(receipt, "error", None)
                log.warning("kafka: delayed message %s stays: %s", delivery.sent.id, error)
                later = self._driver.clock.now() + TIERS[1]
                heapq.heappush(self._waiting, (later, next(self._number), delivery))
        if gone:
            await subscription.ack(gone)

    def _until(self, delivery: Delivery) -> float:
        """When it has to move on: when it is due, or when its time in this topic is over."""
        place, _ = delivery.token
        tier = TIERS[int(place.topic.rpartition(".")[2])]
        now = self._driver.clock.now()
        due = delivery.sent.due_at
        return now if due is None else min(due, now + tier)


def _as_meant(message: Outgoing) -> Outgoing:
    """The message as it was sent before it had to wait."""
    headers = dict(message.headers)
    to = headers.pop(TO, "")
    if isinstance(to, str) and to.startswith("q:"):
        return msgspec.structs.replace(message, queue=to[2:], headers=headers)
    exchange = to[2:] if isinstance(to, str) else ""
    return msgspec.structs.replace(message, exchange=exchange, headers=headers)
