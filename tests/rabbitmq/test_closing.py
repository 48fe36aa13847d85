"""A close, even one that is given up, leaves nobody behind who takes messages and handles none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest

from queuecraft.drivers.base import Delivery, Outgoing, Queue, Receipt, Subscription
from queuecraft.drivers.rabbitmq import RabbitDriver
from queuecraft.drivers.rabbitmq.confirms import Parcel
from queuecraft.drivers.rabbitmq.subscription import RabbitSubscription
from tests.drivers.rabbitmq.broker import turn
from tests.proxy import Proxy
from tests.rabbitmq.place import opened, until

KINDS = pytest.mark.parametrize("kind", ["classic", "quorum"])
NAMES = ["m-0", "m-1", "m-2", "m-3"]


@asynccontextmanager
async def four_messages(url: str, queue: Queue) -> AsyncGenerator[tuple[Proxy, RabbitDriver]]:
    """A queue with as many, and a driver whose network may be slow."""
    with Proxy.to(url) as proxy:
        async with opened(proxy.url(url)) as driver:
            await driver.declare(queue)
            await driver.send([Outgoing(b"", name, queue=queue.name) for name in NAMES])
            yield proxy, driver


async def received(consumer: Subscription, count: int) -> list[Delivery]:
    """So many deliveries, or fewer if no more come."""
    got: list[Delivery] = []
    while len(got) < count and (some := await consumer.receive(count - len(got), 5)):
        got += some
    return got


async def give_up(closing: asyncio.Task[None], proxy: Proxy) -> None:
    """Cancel a close that waits for the broker, which answers after that."""
    await turn()
    assert not closing.done()
    closing.cancel()
    await turn()
    proxy.restore()
    with pytest.raises(asyncio.CancelledError):
        await closing


async def left(url: str, queue: Queue) -> list[str]:
    """What another process gets from the queue."""
    async with opened(url) as other:
        consumer = await other.subscribe(queue, prefetch=10)
        return [each.sent.id for each in await received(consumer, len(NAMES))]


@KINDS
async def test_a_close_given_up_while_something_is_given_back_returns_all_it_held(
    rabbitmq_url: str, kind: str
) -> None:
    queue = Queue("billing", arguments={"x-queue-type": kind})
    async with four_messages(rabbitmq_url, queue) as (proxy, driver):
        consumer = await driver.subscribe(queue, prefetch=4)
        held = await received(consumer, 4)
        proxy.delay(3600, to="client")
        releasing = asyncio.create_task(consumer.release(held[3:]))
        await turn()
        await give_up(asyncio.create_task(consumer.close()), proxy)
        await releasing
        assert sorted(await left(rabbitmq_url, queue)) == NAMES


@KINDS
async def test_a_close_given_up_by_the_only_active_consumer_makes_room_for_the_next(
    rabbitmq_url: str, kind: str
) -> None:
    queue = Queue("numbers", arguments={"x-queue-type": kind}, single_active=True)
    async with four_messages(rabbitmq_url, queue) as (proxy, driver):
        consumer = await driver.subscribe(queue, prefetch=4)
        await consumer.release(await received(consumer, 4))
        proxy.delay(3600, to="client")
        await give_up(asyncio.create_task(consumer.close()), proxy)
        assert await left(rabbitmq_url, queue) == NAMES


async def test_what_a_receive_that_was_given_up_has_taken_comes_again_unmarked(
    rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue("billing")
    sending, may_send = asyncio.Event(), asyncio.Event()
    send = RabbitDriver.send_parcels

    async def held_up(self: RabbitDriver, parcels: Sequence[Parcel]) -> Sequence[Receipt]:
        sending.set()
        await may_send.wait()
        return await send(self, parcels)

    async with opened(rabbitmq_url) as driver:
        async with opened(rabbitmq_url) as crashed:
            await crashed.declare(queue)
            await crashed.send([Outgoing(b"", name, queue="billing") for name in NAMES])
            await crashed.subscribe(queue, prefetch=1)
            await until(lambda: driver.count("billing"), lambda ready: ready == 3)
        await until(lambda: driver.count("billing"), lambda ready: ready == 4)
        consumer = await driver.subscribe(queue, prefetch=4)
        assert isinstance(consumer, RabbitSubscription)
        while len(consumer._channel.arrivals) < 4:
            await consumer._channel.arrived_more()
        monkeypatch.setattr(RabbitDriver, "send_parcels", held_up)
        receiving = asyncio.create_task(consumer.receive(4, 10))
        await sending.wait()
        receiving.cancel()
        await asyncio.wait([receiving])
        may_send.set()
        await consumer.close()
        again = await received(await driver.subscribe(queue, prefetch=4), 4)
    counts = {each.sent.id: each.redeliveries for each in again}
    assert counts == {"m-0": 1, "m-1": 0, "m-2": 0, "m-3": 0}
