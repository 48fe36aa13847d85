"""Giving a message back to a real RabbitMQ is not held against it, whoever gets it next."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from queuecraft.drivers.base import ConnectionLost, Outgoing, Queue, Receipt
from queuecraft.drivers.rabbitmq import drivers
from queuecraft.drivers.rabbitmq.confirms import Parcel
from queuecraft.drivers.rabbitmq.driver import RabbitDriver
from queuecraft.drivers.target import Target


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_giving_back_what_was_redelivered_is_not_one_more_crash(
    rabbitmq_url: str, kind: str
) -> None:
    queue = Queue("billing", arguments={"x-queue-type": kind})
    seen: list[int] = []
    for crashes in (True, False, False, True, False, False):
        (driver,) = drivers(Target(rabbitmq_url))  # as in a process of its own
        await driver.open()
        if not seen:
            await driver.declare(queue)
            await driver.send([Outgoing(b"{}", "m-1", queue="billing")])
        consumer = await driver.subscribe(queue, prefetch=10)
        (delivery,) = await consumer.receive(1, 10)
        seen.append(delivery.redeliveries)
        if not crashes:
            await consumer.release([delivery])
        await consumer.close()
        await driver.close()
    assert seen == [0, 1, 1, 1, 2, 2]


async def test_a_release_waits_for_what_a_full_queue_does_not_take_once_more(
    rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue("billing", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    crashed, driver = (drivers(Target(rabbitmq_url))[0] for _ in range(2))
    await crashed.open()
    await crashed.declare(queue)
    await crashed.send([Outgoing(b"{}", "m-1", queue="billing")])
    consumer = await crashed.subscribe(queue, prefetch=1)
    assert await consumer.receive(1, 10)
    await crashed.close()

    sending, full = asyncio.Event(), asyncio.Event()
    send = RabbitDriver.send_parcels

    async def held_up(self: RabbitDriver, parcels: Sequence[Parcel]) -> Sequence[Receipt]:
        sending.set()
        await full.wait()
        return await send(self, parcels)

    await driver.open()
    consumer = await driver.subscribe(queue, prefetch=1)
    with monkeypatch.context() as patch:
        patch.setattr(RabbitDriver, "send_parcels", held_up)
        receiving = asyncio.ensure_future(consumer.receive(1, 10))
        await sending.wait()
        receiving.cancel()
        await asyncio.wait([receiving])
        releasing = asyncio.ensure_future(consumer.release([]))
        await asyncio.sleep(0)
    await driver.send([Outgoing(b"{}", "m-2", queue="billing")])
    full.set()
    await releasing
    async with asyncio.timeout(10):
        while (await driver.inspect(["billing"]))[0].ready != 2:  # noqa: ASYNC110  the broker's
            await asyncio.sleep(0.05)
    await driver.close()


async def test_a_release_that_cannot_send_again_says_so(
    rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue("billing")
    crashed, driver, other = (drivers(Target(rabbitmq_url))[0] for _ in range(3))
    await crashed.open()
    await crashed.declare(queue)
    await crashed.send([Outgoing(b"{}", "m-1", queue="billing")])
    consumer = await crashed.subscribe(queue, prefetch=1)
    assert await consumer.receive(1, 10)
    await crashed.close()

    await driver.open()
    consumer = await driver.subscribe(queue, prefetch=1)
    taken = await consumer.receive(1, 10)

    async def cut(self: RabbitDriver, parcels: Sequence[Parcel]) -> Sequence[Receipt]:
        raise ConnectionLost("the other connection is cut", broker="rabbitmq")

    with monkeypatch.context() as patch:
        patch.setattr(RabbitDriver, "send_parcels", cut)
        with pytest.raises(ConnectionLost, match="is cut"):
            await consumer.release(taken)
    await driver.close()  # as it is when a connection was lost
    await other.open()
    again = await other.subscribe(queue, prefetch=1)
    assert [each.sent.id for each in await again.receive(1, 10)] == ["m-1"]
    await other.close()
