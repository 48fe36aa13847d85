"""What the tests on a real Kafka share: an order, a QueueCraft that is in a hurry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from queuecraft import Event, Retry, Worker
from queuecraft.drivers.base import Binding, Exchange, Outgoing, Queue, Subscription
from queuecraft.drivers.kafka import drivers
from queuecraft.drivers.kafka.driver import KafkaDriver
from queuecraft.drivers.target import Target

T = TypeVar("T")

AT_ONCE = Retry(max_retries=2, initial_delay=0.05, factor=1)
BRISK = "&refresh=0.2&session_timeout=6&drain_timeout=1"


@dataclass
class Order:
    id: str
    total: float = 9.5


order_placed = Event("order.placed", Order)


@asynccontextmanager
async def running(*workers: Worker) -> AsyncGenerator[None]:
    """Workers that run while the block does."""
    for worker in workers:
        await worker.start()
    try:
        yield
    finally:
        await asyncio.gather(*(worker.stop(timeout=5) for worker in workers))


async def until(
    ask: Callable[[], Awaitable[T]], enough: Callable[[T], object], timeout: float = 15.0
) -> T:
    """What the broker says, as soon as it is enough."""
    last: object = "nothing"
    try:
        async with asyncio.timeout(timeout):
            while True:
                answer = await ask()
                if enough(answer):
                    return answer
                last = answer
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"after {timeout:g} s the broker still says: {last}") from None


def topic(url: str, name: str) -> str:
    """What a topic of ours is called, for those who do not know of prefixes."""
    return parse_qs(urlsplit(url).query)["prefix"][0] + name


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[KafkaDriver]:
    """A driver that is open while the block runs."""
    (driver,) = drivers(Target(url))
    assert isinstance(driver, KafkaDriver)
    await driver.open()
    try:
        yield driver
    finally:
        await driver.close()


def bound(name: str, *patterns: str) -> Queue:
    """A queue that gets these events."""
    return Queue(name, bindings=tuple(Binding(Exchange("events"), each) for each in patterns))


def event(routing_key: str, id: str, **fields: Any) -> Outgoing:
    """An event with an id."""
    return Outgoing(fields.pop("body", b"{}"), id, "events", routing_key, **fields)


async def received(subscription: Subscription, count: int, timeout: float = 15.0) -> list[str]:
    """The ids of so many messages that come, all acknowledged."""
    ids: list[str] = []
    async with asyncio.timeout(timeout):
        while len(ids) < count:
            deliveries = await subscription.receive(count - len(ids), 0.2)
            assert await subscription.ack(deliveries) == []
            ids += [each.sent.id for each in deliveries]
    return ids
