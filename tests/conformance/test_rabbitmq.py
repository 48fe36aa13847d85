"""RabbitMQ keeps the contract, with either kind of queue."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import ClassVar

import pytest

from queuecraft.drivers.base import Driver, Queue
from queuecraft.drivers.rabbitmq.address import addresses
from queuecraft.drivers.rabbitmq.driver import RabbitDriver
from queuecraft.drivers.target import Target
from queuecraft.testing import DriverConformance
from queuecraft.testing.conformance.broker import Broker, ids


class QuorumDriver(RabbitDriver):
    """Makes quorum queues wherever RabbitMQ has them: they outlive their users, and have no
    priorities before 4.0."""

    async def declare(self, queue: Queue) -> None:
        passing = queue.auto_delete or queue.exclusive or not queue.durable
        if not passing and queue.max_priority is None:
            queue = replace(queue, arguments={**queue.arguments, "x-queue-type": "quorum"})
        await super().declare(queue)


@asynccontextmanager
async def opened(kind: type[RabbitDriver], url: str) -> AsyncGenerator[Driver]:
    (address,) = addresses(url)
    driver = kind(Target(url), address)
    await driver.open()
    yield driver
    await driver.close()


class TestRabbitDriver(DriverConformance):
    kind: ClassVar[type[RabbitDriver]] = RabbitDriver
    moment: ClassVar[float] = 0.4  # a level of delay is a tenth of a second

    @pytest.fixture
    async def driver(self, rabbitmq_url: str) -> AsyncIterator[Driver]:
        async with opened(self.kind, rabbitmq_url) as driver:
            yield driver

    @pytest.fixture
    async def second_driver(self, driver: Driver, rabbitmq_url: str) -> AsyncIterator[Driver]:
        async with opened(self.kind, rabbitmq_url) as second:
            yield second


@pytest.mark.faults
class TestQuorumQueues(TestRabbitDriver):
    """The same but for what is given back where no order is asked for: it goes to the end of the
    queue, and RabbitMQ says that it was delivered before. docs/rabbitmq.md says so."""

    kind: ClassVar[type[RabbitDriver]] = QuorumDriver

    async def test_what_a_closed_consumer_held_comes_back_as_redelivered(
        self, broker: Broker
    ) -> None:
        queue = await broker.queue("billing")
        sent = await broker.send(queue, 3)
        for _ in range(2):
            consumer = await broker.consumer(queue)
            await broker.receive(consumer, 2)
            await consumer.close()
        received = await broker.holds_again(queue, sent)
        assert all(1 <= each.redeliveries <= 2 for each in received)

    async def test_released_messages_return_to_the_head_in_order(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        sent = await broker.send(queue, 5)
        consumer = await broker.consumer(queue, prefetch=3)
        await consumer.release(await broker.receive(consumer, 3))
        assert ids(await broker.receive(consumer, 3)) == ["m-4", "m-5", "m-1"]
        await consumer.close()
        await broker.holds_again(queue, sent)

    async def test_a_release_counts_no_redelivery(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        await broker.send(queue)
        consumer = await broker.consumer(queue)
        told: list[int] = []
        for _ in range(5):
            (held,) = await broker.receive(consumer, 1)
            told.append(held.redeliveries)
            await consumer.release([held])
        assert told == [0, 1, 1, 1, 1]  # however often: it cannot become a crash loop

    async def test_peeking_shows_the_next_messages_and_takes_none(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        sent = await broker.send(queue, 4)
        assert ids(await broker.driver.peek(queue.name, 3)) == sent[:3]
        # What was looked at is back a moment later, behind the others.
        await broker.holds(queue, sent, in_order=False)

    async def test_releasing_some_keeps_the_others_held(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        await broker.send(queue, 4)
        consumer = await broker.consumer(queue, prefetch=3)
        one, two, three = await broker.receive(consumer, 3)
        await consumer.release([two, three])
        again = await broker.receive(consumer, 2)
        assert ids(again) == ["m-4", "m-2"]
        assert list(await consumer.ack([one, *again])) == []
        await consumer.close()
        await broker.holds(queue, ["m-3"])
