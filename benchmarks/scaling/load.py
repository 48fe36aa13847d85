"""A payload of any size, and the queue it goes through."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter

import msgspec

from benchmarks.order import WrongCount
from queuecraft import Event, QueueCraft

QUEUE = "billing"
ORDER = 225
IN_FLIGHT = 100
AROUND = len('{"note":""}')


class Load(msgspec.Struct):
    """So many bytes as JSON."""

    note: str


sent = Event("load.sent", Load)


def load(size: int) -> Load:
    """
    >>> len(msgspec.json.encode(load(100)))
    100
    """
    return Load("x" * (size - AROUND))


async def at_once(
    do: Callable[[int], Awaitable[object]], count: int, under_way: int = IN_FLIGHT
) -> float:
    """Seconds for doing it so many times, some under way at a time."""
    numbers = iter(range(count))

    async def go_on() -> None:
        for number in numbers:
            await do(number)

    started = perf_counter()
    await asyncio.gather(*(go_on() for _ in range(under_way)))
    return perf_counter() - started


async def declare(qc: QueueCraft) -> None:
    await qc.admin.declare(QUEUE, sent.name)


async def publish(qc: QueueCraft, count: int, size: int = ORDER) -> float:
    """Seconds for one message, in the middle of many that are published at once."""
    payload = load(size)

    async def publish_one(number: int) -> None:
        await qc.publish(sent, payload)

    return await at_once(publish_one, count) / count


async def fill(qc: QueueCraft, count: int, size: int = ORDER, batch: int = 500) -> None:
    """As fast as it goes."""
    payload = load(size)
    for start in range(0, count, batch):
        await qc.publish_many(sent, [payload] * min(batch, count - start))


async def consume(
    url: str,
    count: int,
    *,
    concurrency: int = IN_FLIGHT,
    prefetch: int = IN_FLIGHT,
    waiting: float = 0.0,
    patience: float = 60.0,
) -> float:
    """Seconds for one message, from the first of so many in a handler to the last.

    What a worker holds beyond them goes back when it ends. `waiting` is how long a handler sleeps.
    """
    qc = QueueCraft(url)
    worker = qc.worker(QUEUE, concurrency=concurrency, prefetch=max(prefetch, concurrency))
    moments: list[float] = []
    done = asyncio.Event()

    @worker.on(sent)
    async def take(order: Load) -> None:
        if waiting:
            await asyncio.sleep(waiting)
        moments.append(perf_counter())
        if len(moments) == count:
            done.set()

    async with qc:
        await worker.start()
        try:
            async with asyncio.timeout(patience):
                await done.wait()
        except TimeoutError:
            msg = f"handled {len(moments)} messages of {count} within {patience:g} s"
            raise WrongCount(msg) from None
    return (moments[count - 1] - moments[0]) / (count - 1)
