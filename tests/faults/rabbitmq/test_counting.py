"""How often a message was lost with its consumer is counted, whatever comes between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from queuecraft import Queue, QueueCraft
from queuecraft.drivers.base import ACCEPTED, Delivery, Driver, Outgoing, Receipt
from queuecraft.drivers.rabbitmq import RabbitDriver, drivers
from queuecraft.drivers.rabbitmq.confirms import Parcel
from queuecraft.drivers.target import Target
from tests.faults.rabbitmq.handlers import Seen, at_work, hold_and_die

IDS = [f"m-{n}" for n in range(10)]
QUEUE = Queue("billing")


@pytest.fixture
async def driver(rabbitmq_url: str) -> AsyncIterator[Driver]:
    (driver,) = drivers(Target(rabbitmq_url))
    await driver.open()
    await driver.declare(QUEUE)
    yield driver
    await driver.close()


async def fill(driver: Driver) -> None:
    receipts = await driver.send([Outgoing(b"{}", each, queue=QUEUE.name) for each in IDS])
    assert all(each is ACCEPTED for each in receipts)


async def test_a_receive_cancelled_while_it_counts_neither_loses_nor_doubles_anything(
    driver: Driver, rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(driver)
    await hold_and_die(rabbitmq_url, QUEUE.name, len(IDS))
    subscription = await driver.subscribe(QUEUE, prefetch=20)
    send = RabbitDriver.send_parcels

    async def send_and_cancel(self: RabbitDriver, parcels: Sequence[Parcel]) -> list[Receipt]:
        receiving.cancel()
        return await send(self, parcels)

    monkeypatch.setattr(RabbitDriver, "send_parcels", send_and_cancel)
    receiving = asyncio.create_task(subscription.receive(10, 10))
    await asyncio.wait([receiving])
    assert receiving.cancelled()

    held: list[Delivery] = []
    while len(held) < len(IDS):
        more = await subscription.receive(10, 5)
        assert more, f"only {len(held)} of {len(IDS)} came"
        held += more
    assert sorted(each.sent.id for each in held) == IDS
    assert {each.redeliveries for each in held} == {1}
    assert await subscription.receive(10, 0.2) == []
    await subscription.close()


async def test_what_a_full_queue_does_not_take_again_is_handled_as_it_is(
    rabbitmq_url: str,
) -> None:
    seen = Seen()
    full = Queue("full", arguments={"x-max-length": 5, "x-overflow": "reject-publish"})
    async with QueueCraft(rabbitmq_url) as qc:
        worker = qc.worker(full, prefetch=5).on("order.*", seen)
        await worker.declare()
        await qc.publish_many("order.placed", range(5))

        async def refill() -> None:
            await qc.publish_many("order.placed", range(5, 10))

        await hold_and_die(rabbitmq_url, "full", 5, meanwhile=refill)
        async with at_work(worker):
            await seen.has(*range(10))
    assert sorted(map(str, seen.payloads)) == [str(n) for n in range(10)]
    assert {each.redeliveries for each in seen.messages if each.payload in range(5)} == {1}
