"""The order in which a shutdown lets go: what is decided first goes out, then doors are closed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from queuecraft import QueueCraft
from queuecraft.drivers.base import Delivery, Outgoing, Queue, Receipt, Subscription, Traits
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.drivers.local.subscription import MemorySubscription
from queuecraft.facts import Shutdown
from tests.runtime.consuming import number, word


class Diary(MemoryDriver):
    """Notes what it is asked to do, and takes its time to store what is published."""

    traits: ClassVar[Traits] = replace(MemoryDriver.traits, inline=False)

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    async def send(
        self, messages: Sequence[Outgoing], *, atomic: bool = False
    ) -> Sequence[Receipt]:
        if messages[0].routing_key == word.name:
            for _ in range(20):
                await asyncio.sleep(0)
            self.notes.append("publish")
        return await super().send(messages, atomic=atomic)

    async def subscribe(self, queue: Queue, *, prefetch: int) -> Subscription:
        subscription = NotedSubscription(
            self, self._inbox(queue.name, "subscribe"), prefetch, self._clock
        )
        self._subscriptions[subscription] = None
        return subscription

    async def close(self) -> None:
        await super().close()
        self.notes.append("close driver")


class NotedSubscription(MemorySubscription):
    _driver: Diary

    async def ack(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        self._driver.notes.append("ack")
        return await super().ack(deliveries)

    async def close(self) -> None:
        if not self._closed:
            self._driver.notes.append("close subscription")
        await super().close()


async def test_a_shutdown_acks_then_flushes_publishes_then_closes_then_tells() -> None:
    driver = Diary()
    qc = QueueCraft(drivers=[driver])
    observed = asyncio.Event()
    loose: list[asyncio.Task[str]] = []

    async def note_the_end(fact: Shutdown) -> None:
        driver.notes.append("shutdown")
        observed.set()

    qc.observe(Shutdown, note_the_end)
    entered = asyncio.Event()
    worker = qc.worker("numbers")

    @worker.on(number)
    async def publish_and_forget(n: int) -> None:
        entered.set()
        await asyncio.sleep(0)
        loose.append(asyncio.create_task(qc.publish(word, str(n))))
        await asyncio.sleep(0)

    qc.worker("words").on(word, print)
    async with qc:
        await worker.start()
        await qc.publish(number, 1)
        await entered.wait()
    assert observed.is_set(), "async observers of the last fact are waited for"
    assert driver.notes == ["ack", "publish", "close subscription", "close driver", "shutdown"]
    assert await loose[0], "what a handler published without waiting was published"
