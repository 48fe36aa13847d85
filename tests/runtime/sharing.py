"""A broker that shares a queue out anew while it is consumed, as Kafka does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from queuecraft.drivers.base import Delivery, Move, Outgoing, Queue, Receipt, Rejected, Subscription
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.model.errors import AlreadySettled
from queuecraft.testing import FakeClock, FaultyDriver
from queuecraft.testing.faulty import FaultySubscription


class SharingDriver(FaultyDriver):
    """Gives to others what a test says, and takes a redelivery for any message."""

    def __init__(self, clock: FakeClock, *, inline: bool) -> None:
        super().__init__(MemoryDriver(clock), inline=inline)
        vars(self)["traits"] = replace(self.traits, counts_redeliveries=False)
        self.consumer: SharingSubscription | None = None
        self.others: list[Outgoing] = []
        """What others have been given."""

    async def subscribe(self, queue: Queue, *, prefetch: int) -> Subscription:
        await self.begin("subscribe")
        inner = await self.inner.subscribe(queue, prefetch=prefetch)
        self.consumer = SharingSubscription(self, inner)
        return self.consumer

    async def ask_for(self, *ids: str) -> None:
        """Others are to have these messages: whoever holds them is told."""
        assert self.consumer is not None
        self.consumer.ask_for(ids)

    async def give(self, *ids: str) -> None:
        """They have them by now."""
        assert self.consumer is not None
        await self.consumer.give(ids)


class SharingSubscription(FaultySubscription):
    """The consumer that has to share."""

    def __init__(self, driver: SharingDriver, inner: Subscription) -> None:
        super().__init__(driver, inner)
        self.held: dict[str, Delivery] = {}
        self._others = driver.others
        self._leaving: set[str] = set()

    def ask_for(self, ids: Sequence[str]) -> None:
        """Tell who consumes that others are to have these."""
        self._leaving.update(ids)
        assert self.on_leaving is not None
        self.on_leaving([each for id, each in self.held.items() if id in ids])

    async def give(self, ids: Sequence[str]) -> None:
        """Give them these, whoever holds them."""
        gone = [self.held.pop(id) for id in ids if id in self.held]
        await self._hand_over(gone)
        assert self.on_left is not None
        self.on_left(gone)

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        taken = await super().receive(limit, wait)
        self.held |= {each.sent.id: each for each in taken}
        return taken

    async def ack(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        stale = await super().ack(deliveries)
        self._forget(deliveries)
        return stale

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        leaving = [each for each in deliveries if each.sent.id in self._leaving]
        await self._hand_over([each for each in leaving if self.held.get(each.sent.id) is each])
        await super().release([each for each in deliveries if each not in leaving])
        self._forget(deliveries)

    async def move(self, moves: Sequence[Move]) -> Sequence[Receipt]:
        answers: dict[Delivery, Receipt] = {
            each.delivery: Rejected(AlreadySettled("others have it"))
            for each in moves
            if self.held.get(each.delivery.sent.id) is not each.delivery
        }
        ours = [each for each in moves if each.delivery not in answers]
        receipts = await super().move(ours)
        answers |= {each.delivery: answer for each, answer in zip(ours, receipts, strict=True)}
        self._forget([each.delivery for each in moves])
        return [answers[each.delivery] for each in moves]

    async def _hand_over(self, deliveries: Sequence[Delivery]) -> None:
        await self.inner.ack(deliveries)  # of this queue it is no more
        self._others += [each.sent for each in deliveries]

    def _forget(self, deliveries: Sequence[Delivery]) -> None:
        for each in deliveries:
            if self.held.get(each.sent.id) is each:
                del self.held[each.sent.id]
