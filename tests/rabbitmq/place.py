"""What the tests on a real RabbitMQ share: an order, a QueueCraft that is in a hurry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

from queuecraft import Event, QueueCraft, Retry, Worker
from queuecraft.drivers.rabbitmq import RabbitDriver, drivers
from queuecraft.drivers.target import Target
from tests.brokers.rabbitmq import RabbitMQ

T = TypeVar("T")

AT_ONCE = Retry(max_retries=2, initial_delay=0.1, factor=1)


@dataclass
class Order:
    id: str
    total: float = 9.5


order_placed = Event("order.placed", Order)
order_paid = Event("order.paid", Order)
number = Event("number", int)


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[RabbitDriver]:
    """A driver that is open while the block runs."""
    (driver,) = drivers(Target(url))
    assert isinstance(driver, RabbitDriver)
    await driver.open()
    try:
        yield driver
    finally:
        await driver.close()


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
    ask: Callable[[], Awaitable[T]], enough: Callable[[T], object], timeout: float = 10.0
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
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"after {timeout:g} s the broker still says: {last}") from None


async def until_ready(qc: QueueCraft, queue: str, messages: int) -> None:
    """Return once so many messages are ready in a queue."""
    await until(lambda: qc.admin.inspect(queue), lambda info: info.ready == messages)


def interface(rabbitmq: RabbitMQ) -> str:
    """Where its management interface is, as a URL of ours names it."""
    parts = urlsplit(rabbitmq.management_url)
    return f"{parts.scheme}://{parts.hostname}:{parts.port}"
