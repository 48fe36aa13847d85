"""What a consumer does not hold any more is moved by nobody: the copy would be one too many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from queuecraft.drivers.base import ACCEPTED, Move, Outgoing, Queue, Rejected, Subscription
from queuecraft.drivers.rabbitmq import RabbitDriver
from queuecraft.drivers.rabbitmq.frames import ack
from queuecraft.drivers.rabbitmq.subscription import RabbitSubscription
from queuecraft.model.errors import AlreadySettled
from tests.rabbitmq.place import opened, until

HERE, THERE = Queue("billing"), Queue("audit")


@pytest.fixture
async def driver(rabbitmq_url: str) -> AsyncGenerator[RabbitDriver]:
    async with opened(rabbitmq_url) as driver:
        for queue in (HERE, THERE):
            await driver.declare(queue)
        yield driver


@pytest.fixture
async def move(driver: RabbitDriver, consumer: Subscription) -> Move:
    """Of a message that is held."""
    await driver.send([Outgoing(b"{}", "m-1", queue=HERE.name)])
    (held,) = await consumer.receive(1, 10)
    return Move(held, Outgoing(b"{}", "m-1", queue=THERE.name))


@pytest.fixture
async def consumer(driver: RabbitDriver) -> Subscription:
    return await driver.subscribe(HERE, prefetch=10)


async def test_a_channel_that_the_broker_has_closed_moves_nothing(
    driver: RabbitDriver, consumer: Subscription, move: Move
) -> None:
    assert isinstance(consumer, RabbitSubscription)
    channel = consumer._channel
    channel.wire.write(ack(channel.number, 999, multiple=False))  # which costs it
    async with asyncio.timeout(10):
        while not channel.ended:
            await channel.arrived_more()
    (receipt,) = await consumer.move([move])
    assert isinstance(receipt, Rejected)
    assert isinstance(receipt.error, AlreadySettled)
    await until(lambda: driver.count(HERE.name), lambda ready: ready == 1)
    assert await driver.count(THERE.name) == 0


async def test_a_message_is_moved_once(
    driver: RabbitDriver, consumer: Subscription, move: Move
) -> None:
    receipts = [*await consumer.move([move, move]), *await consumer.move([move])]
    assert receipts[0] is ACCEPTED
    for receipt in receipts[1:]:
        assert isinstance(receipt, Rejected)
        assert isinstance(receipt.error, AlreadySettled)
    await consumer.close()
    assert await driver.count(HERE.name) == 0
    assert await driver.count(THERE.name) == 1
