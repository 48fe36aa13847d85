"""Workers in the process of a test, and what they are given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from queuecraft import Message, Queue, QueueCraft, Worker
from queuecraft.drivers.rabbitmq import drivers
from queuecraft.drivers.target import Target
from queuecraft.facts import Disconnected

PATIENCE = 30.0


class Seen:
    """Payloads and messages that handlers were called with, in order."""

    def __init__(self) -> None:
        self.payloads: list[object] = []
        self.messages: list[Message] = []
        self._more = asyncio.Event()

    async def __call__(self, payload: object, message: Message) -> None:
        self.payloads.append(payload)
        self.messages.append(message)
        self._more.set()

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until it is so; looked at whenever there is one more."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._more.clear()
                await self._more.wait()

    async def has(self, *payloads: object) -> None:
        """Wait until all of them were seen."""
        await self.until(lambda: all(each in self.payloads for each in payloads))


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    """Wait until it is so, asking now and then."""
    async with asyncio.timeout(PATIENCE):
        while not await condition():  # noqa: ASYNC110  the broker tells nobody of it
            await asyncio.sleep(0.02)


@asynccontextmanager
async def at_work(*workers: Worker) -> AsyncGenerator[None]:
    """Workers that run meanwhile, and are stopped."""
    for worker in workers:
        await worker.start()
    try:
        yield
    finally:
        for worker in workers:
            await worker.stop()


def disconnections(qc: QueueCraft) -> list[Disconnected]:
    """How often the connection was lost, as far as it has happened."""
    found: list[Disconnected] = []
    qc.observe(Disconnected, found.append)
    return found


async def hold_and_die(
    url: str, queue: str, count: int, meanwhile: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Receive so many messages and lose the connection."""
    (driver,) = drivers(Target(url))
    await driver.open()
    subscription = await driver.subscribe(Queue(queue), prefetch=count)
    held = 0
    while held < count:
        held += len(await subscription.receive(count, 10))
    if meanwhile is not None:
        await meanwhile()
    await driver.close()
