"""What the tests of the runtime share: an order, a worker at work, a look into a queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from queuecraft import Event, QueueCraft, Worker
from queuecraft.drivers.base import Delivery, Driver, Outgoing, Queue, Subscription
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.model.types import HeaderValue
from queuecraft.testing import FakeClock, FaultyDriver


@dataclass
class Order:
    id: str
    total: float = 9.5


order_placed = Event("order.placed", Order)
order_paid = Event("order.paid", Order)


@dataclass
class Stage:
    """A QueueCraft whose time and whose broker are in the hands of the test."""

    clock: FakeClock
    driver: FaultyDriver
    qc: QueueCraft


@asynccontextmanager
async def staged(*, inline: bool = True, **options: Any) -> AsyncGenerator[Stage]:
    """An open stage, cleared at the end. With `inline=False` every broker call suspends."""
    clock = FakeClock()
    driver = FaultyDriver(MemoryDriver(clock), inline=inline)
    async with QueueCraft(drivers=[driver], clock=clock, **options) as qc:
        yield Stage(clock, driver, qc)


@asynccontextmanager
async def running(*workers: Worker) -> AsyncGenerator[None]:
    """Workers that run while the block does."""
    for worker in workers:
        await worker.start()
    try:
        yield
    finally:
        await asyncio.gather(*(worker.stop(timeout=5) for worker in workers))


async def eventually(condition: Callable[[], object], timeout: float = 5.0) -> None:
    """Return once the condition holds."""
    try:
        async with asyncio.timeout(timeout):
            while not condition():  # noqa: ASYNC110  whatever makes it true, it sets no event
                await asyncio.sleep(0)
    except TimeoutError:
        raise AssertionError(f"still not so after {timeout:g} s") from None


async def quiet() -> None:
    """Let everything happen that needs no time to pass."""
    for _ in range(100):
        await asyncio.sleep(0)


async def contents(driver: Driver, queue: str) -> list[Outgoing]:
    """What is ready in a queue, in order."""
    return [delivery.sent for delivery in await driver.peek(queue, 1_000_000)]


async def ids(driver: Driver, queue: str) -> list[str]:
    """The ids of what is ready in a queue, in order."""
    return [message.id for message in await contents(driver, queue)]


def dead_letter(
    id: str = "m-1",
    *,
    queue: str | None = "billing",
    event: str = "order.placed",
    error: str = "no money",
    error_type: str = "ValueError",
    body: bytes = b'{"id":"o-1","total":9.5}',
    failed_at: float | None = 1_750_000_000.0,
    headers: Mapping[str, Any] | None = None,
    to: str = "billing.dlq",
) -> Outgoing:
    """A dead letter as a worker would leave it."""
    story: dict[str, HeaderValue] = {
        "x-original-routing-key": event,
        "x-error": error,
        "x-error-type": error_type,
        "x-traceback": f"Traceback:\n{error_type}: {error}\n",
        "x-retry-count": 4,
        "x-reason": "handler-error",
        **(headers or {}),
    }
    if queue is not None:
        story["x-original-queue"] = queue
    if failed_at is not None:
        story["x-failed-at"] = int(failed_at * 1000)
    return Outgoing(
        body,
        id,
        routing_key="billing.dlq",
        timestamp=1_700_000_000.0,
        content_type="application/json",
        queue=to,
        headers=story,
    )


async def with_dead_letters(qc: QueueCraft, driver: Driver, *letters: Outgoing) -> Worker:
    """A worker named billing that has not begun, and what failed before."""
    billing = qc.worker("billing")

    @billing.on(order_placed)
    async def charge(order: Order) -> None: ...

    await driver.declare(billing.definition)
    await driver.send(letters)
    return billing


def changed(message: Outgoing, **changes: Any) -> Outgoing:
    """The same message but for some fields."""
    return msgspec.structs.replace(message, **changes)


async def declared(driver: Driver, *names: str) -> None:
    """Plain queues."""
    for name in names:
        await driver.declare(Queue(name))


def sparing(patch: pytest.MonkeyPatch, driver: type[Driver], most: int) -> None:
    """Let a broker give a consumer nothing more while it has so many messages in hand: Kafka does
    not read far past what is kept, and any broker may fall silent."""
    subscribe = driver.subscribe

    async def subscribe_to_few(self: Driver, queue: Queue, *, prefetch: int) -> Subscription:
        return await subscribe(self, queue, prefetch=min(prefetch, most))

    patch.setattr(driver, "subscribe", subscribe_to_few)
    patch.setattr("queuecraft.runtime.redrive.WAIT", 0.01)  # this one will not change its mind


def capping(patch: pytest.MonkeyPatch, driver: type[Driver], most: int) -> None:
    """Let a broker show no more than so many messages of a queue, as RabbitMQ shows 65,535."""
    peek = driver.peek

    async def peek_at_few(self: Driver, queue: str, limit: int) -> Sequence[Delivery]:
        return await peek(self, queue, min(limit, most))

    patch.setattr(driver, "peek", peek_at_few)


def renaming(patch: pytest.MonkeyPatch, driver: type[Driver]) -> None:
    """Let a broker make up other ids whenever somebody looks: what came without one has no id."""
    peek = driver.peek

    async def peek_anew(self: Driver, queue: str, limit: int) -> Sequence[Delivery]:
        return [
            msgspec.structs.replace(each, sent=changed(each.sent, id=f"foreign-{uuid4().hex}"))
            for each in await peek(self, queue, limit)
        ]

    patch.setattr(driver, "peek", peek_anew)
