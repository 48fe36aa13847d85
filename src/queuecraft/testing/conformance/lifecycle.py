"""Opening, closing, opening again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from queuecraft.drivers.base import ConnectionLost, Driver
from queuecraft.model.queue import EXCHANGE_TYPES
from queuecraft.testing.conformance.broker import Broker, ids
from queuecraft.testing.conformance.receiving import turns
from queuecraft.testing.conformance.settling import refuses
from queuecraft.testing.conformance.suite import Suite


class LifecycleConformance(Suite):
    """What a closed driver refuses, and what a reopened one still knows.

    >>> issubclass(LifecycleConformance, Suite)
    True
    """

    async def test_the_traits_make_sense(self, driver: Driver) -> None:
        traits = driver.traits
        assert traits.name
        assert traits.exchange_types
        assert traits.exchange_types <= frozenset(EXCHANGE_TYPES)
        assert 0 < traits.max_name <= 255
        assert traits.max_delay >= 86_400 * 30

    async def test_a_closed_driver_refuses_everything(self, broker: Broker) -> None:
        queue = await broker.queue("billing", "order.placed")
        driver = broker.driver
        await driver.close()
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: driver.prepare([broker.exchange()]),
            lambda: driver.declare(queue),
            lambda: driver.send([broker.message("order.placed")]),
            lambda: driver.subscribe(queue, prefetch=1),
            lambda: driver.inspect(),
            lambda: driver.topology(),
            lambda: driver.peek(queue.name, 1),
            lambda: driver.purge(queue.name),
            lambda: driver.delete(queue.name),
        ]
        for call in calls:
            with pytest.raises(ConnectionLost):
                await call()
        await driver.open()

    async def test_closing_twice_is_fine(self, broker: Broker) -> None:
        await broker.driver.close()
        await broker.driver.close()
        await broker.driver.open()
        queue = await broker.queue("billing")
        await broker.holds(queue, await broker.send(queue))

    async def test_a_reopened_driver_knows_what_it_was_told(self, broker: Broker) -> None:
        queue = await broker.queue("billing", "order.placed")
        before = await broker.publish("order.placed", key="one")
        await broker.driver.close()
        await broker.driver.open()
        after = await broker.publish("order.placed", key="one")
        await broker.holds(queue, before + after)

    async def test_a_delayed_message_outlives_the_connection(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        due = time.time() + self.moment
        sent = await broker.send(queue, due_at=due)
        await broker.driver.close()
        await broker.driver.open()
        await broker.holds(queue, sent)
        assert time.time() >= due

    async def test_what_was_held_comes_back_after_the_connection_is_closed(
        self, broker: Broker
    ) -> None:
        queue = await broker.queue("billing")
        sent = await broker.send(queue, 3, key="one")
        consumer = await broker.consumer(queue, prefetch=2)
        held = await broker.receive(consumer, 2)
        await broker.driver.close()
        await broker.driver.open()
        await refuses(consumer, held)
        received = await broker.holds_again(queue, sent)
        if broker.traits.counts_redeliveries:
            assert [each.redeliveries for each in received] == [1, 1, 0]

    async def test_a_subscription_ends_with_its_connection(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        consumer = await broker.consumer(queue)
        await broker.driver.close()
        await broker.driver.open()
        sent = await broker.send(queue)
        with pytest.raises(ConnectionLost):
            await consumer.receive(1, 0)
        await consumer.close()
        await broker.holds(queue, sent)

    async def test_closing_ends_a_receive_that_waits(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        consumer = await broker.consumer(queue)
        waiting = asyncio.create_task(broker.receive(consumer, 1))
        await turns(3)
        await broker.driver.close()
        with pytest.raises(ConnectionLost):
            await waiting
        await broker.driver.open()

    async def test_closing_a_subscription_ends_its_receive(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        consumer = await broker.consumer(queue, prefetch=1)
        await broker.send(queue)
        await broker.receive(consumer, 1)
        waiting = asyncio.create_task(broker.receive(consumer, 1))
        await turns(3)
        await consumer.close()
        with pytest.raises(ConnectionLost):
            await waiting

    async def test_two_connections_see_the_same_queues(
        self, broker: Broker, second_driver: Driver
    ) -> None:
        queue = await broker.queue("billing", "order.placed")
        published = await broker.publish("order.placed")
        consumer = await broker.consumer(queue, driver=second_driver)
        assert ids(await broker.receive(consumer, 1)) == published
