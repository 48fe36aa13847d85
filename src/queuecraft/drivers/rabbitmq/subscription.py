"""A consumer of a RabbitMQ queue, and the deliveries it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from queuecraft.clock import Clock
from queuecraft.drivers.base import ACCEPTED, Delivery, Outgoing, Queue, Receipt, Subscription
from queuecraft.drivers.rabbitmq.consuming import Arrival, Consuming
from queuecraft.drivers.rabbitmq.envelope import message_of, parcel
from queuecraft.failpoints import failpoint

if TYPE_CHECKING:
    from queuecraft.drivers.rabbitmq.driver import RabbitDriver


class RabbitSubscription(Subscription):
    """One consumer on a channel of its own. An ack is not answered by the broker: what matters is
    that none is ever sent on a channel that is not the one the message came by."""

    def __init__(
        self,
        driver: RabbitDriver,
        queue: Queue,
        channel: Consuming,
        clock: Clock,
        *,
        counting: bool,
    ) -> None:
        self.queue = queue
        self._driver = driver
        self._channel = channel
        self._clock = clock
        self._counting = counting  # deliveries, because the broker does not
        self._held: dict[Delivery, None] = {}
        self._ready: list[Delivery] = []

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        channel = self._channel
        channel.check()
        deadline = self._clock.monotonic() + wait
        while True:
            taken = await self._take(limit)
            if taken or wait <= 0:
                return taken
            try:
                async with asyncio.timeout(wait):
                    await channel.arrived()
            except TimeoutError:
                return []
            channel.check()
            wait = deadline - self._clock.monotonic()

    async def ack(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        failpoint("ack.before")
        ours, stale = self._ours(deliveries)
        if ours:
            self._channel.check_open()
            self._channel.ack([each.token for each in ours])
            for delivery in ours:
                del self._held[delivery]
        return stale

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        ours, _ = self._ours(deliveries)
        if ours:
            self._channel.check_open()
            self._driver.released(each.sent.id for each in ours)
            self._channel.give_back([each.token for each in ours])
            for delivery in ours:
                del self._held[delivery]

    async def send(self, messages: Sequence[Outgoing]) -> Sequence[Receipt]:
        return await self._driver.send(messages)

    async def close(self) -> None:
        self._driver.forget(self)
        if self._channel.lost is None:
            self._return_unseen()
        self._held.clear()
        await self._channel.close()

    # -- inside --------------------------------------------------------------------------------

    def _return_unseen(self) -> None:
        """What nobody was given is not held against it: closing the channel would mark it."""
        unseen = list(self._channel.arrivals)
        self._channel.arrivals.clear()
        if unseen:
            self._driver.released(
                each.properties.message_id for each in unseen if each.properties.message_id
            )
            self._channel.give_back([each.tag for each in unseen])

    async def _take(self, limit: int) -> list[Delivery]:
        arrivals = self._channel.arrivals
        ready = self._ready
        released = self._driver.was_released
        again: list[tuple[Arrival, Outgoing, int]] = []
        while arrivals and len(ready) < limit:
            arrival = arrivals.popleft()
            message, counted, noted = message_of(arrival)
            if counted is not None:
                noted = counted
            elif arrival.redelivered and self._counting and not released(message.id):
                again.append((arrival, message, noted + 1))
                continue
            delivery = Delivery(message, self.queue.name, noted, arrival.tag)
            self._held[delivery] = None
            ready.append(delivery)
        if again:
            await self._count(again)
        taken = ready[:limit]
        del ready[:limit]
        return taken

    async def _count(self, again: Sequence[tuple[Arrival, Outgoing, int]]) -> None:
        """A classic queue tells only that a message was delivered before, not how often: it is
        sent to its own queue once more with the count in a header, and that one is handled."""
        parcels = [
            parcel(message, "", self.queue.name, redeliveries=count) for _, message, count in again
        ]
        receipts = await self._driver.send_parcels(parcels)
        sent = [
            arrival.tag
            for (arrival, _, _), receipt in zip(again, receipts, strict=True)
            if receipt is ACCEPTED
        ]
        if sent:
            self._channel.check_open()
            self._channel.ack(sent)
        # What was not taken stays unsettled; the broker delivers it again with the next channel.

    def _ours(self, deliveries: Sequence[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
        ours: list[Delivery] = []
        stale: list[Delivery] = []
        for delivery in dict.fromkeys(deliveries):
            (ours if delivery in self._held else stale).append(delivery)
        return ours, stale
