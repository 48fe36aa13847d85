"""Getting messages: in order, no more than asked for, woken when there are some."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from queuecraft.drivers.base import Delivery, Driver, Subscription
from queuecraft.testing.conformance.broker import Broker, ids
from queuecraft.testing.conformance.suite import Suite


async def turns(count: int) -> None:
    """Let the event loop turn a few times."""
    for _ in range(count):
        await asyncio.sleep(0)


async def taking(subscription: Subscription, limit: int, wait: float) -> Sequence[Delivery]:
    """One call of `receive`, to make a task of."""
    return await subscription.receive(limit, wait)


class ReceivingConformance(Suite):
    """Order, limits, waiting, and several consumers on one queue.

    >>> issubclass(ReceivingConformance, Suite)
    True
    """

    async def test_messages_arrive_in_the_order_they_were_sent(self, broker: Broker) -> None:
        queue = await broker.queue("billing", "order.placed")
        published: list[str] = []
        for size in (1, 20, 1, 30):
            published += await broker.publish(*["order.placed"] * size, key="one")
        await broker.holds(queue, published)

    async def test_a_call_gives_no_more_than_its_limit(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        sent = await broker.send(queue, 5, key="one")
        consumer = await broker.consumer(queue)
        received: list[Delivery] = []
        while len(received) < 5:
            some = await consumer.receive(2, self.patience)
            assert 1 <= len(some) <= 2
            received += some
        assert ids(received) == sent

    async def test_a_consumer_holds_no_more_than_its_prefetch(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        sent = await broker.send(queue, 5, key="one")
        consumer = await broker.consumer(queue, prefetch=2)
        held = await broker.receive(consumer, 2)
        await broker.nothing(consumer)
        await consumer.ack(held[:1])
        (third,) = await broker.receive(consumer, 1)
        await broker.nothing(consumer)
        assert [*ids(held), third.sent.id] == sent[:3]

    async def test_a_consumer_that_waits_at_its_prefetch_goes_on_when_there_is_room(
        self, broker: Broker
    ) -> None:
        queue = await broker.queue("billing")
        first, second = await broker.send(queue, 2, key="one")
        consumer = await broker.consumer(queue, prefetch=1)
        held = await broker.receive(consumer, 1)
        assert ids(held) == [first]
        waiting = asyncio.create_task(broker.receive(consumer, 1))
        await turns(3)
        await consumer.ack(held)
        assert ids(await waiting) == [second]

    async def test_an_empty_queue_gives_nothing(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        consumer = await broker.consumer(queue)
        assert list(await consumer.receive(10, 0)) == []
        assert list(await consumer.receive(10, 0.01)) == []

    async def test_a_waiting_consumer_wakes_when_a_message_comes(self, broker: Broker) -> None:
        queue = await broker.queue("billing", "order.placed")
        consumer = await broker.consumer(queue)
        for _ in range(3):
            waiting = asyncio.create_task(broker.receive(consumer, 1))
            await turns(3)
            published = await broker.publish("order.placed")
            assert ids(await waiting) == published

    async def test_an_ack_while_waiting_does_not_end_the_wait(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        first = await broker.send(queue)
        consumer = await broker.consumer(queue)
        held = await broker.receive(consumer, 1)
        waiting = asyncio.create_task(taking(consumer, 10, self.patience))
        await turns(3)
        assert list(await consumer.ack(held)) == []
        await turns(3)
        second = await broker.send(queue)
        assert [*ids(held), *ids(await waiting)] == first + second

    @pytest.mark.parametrize("after", range(8))
    async def test_cancelling_a_receive_loses_nothing(self, broker: Broker, after: int) -> None:
        queue = await broker.queue("billing")
        consumer = await broker.consumer(queue)
        waiting = asyncio.create_task(taking(consumer, 10, self.patience))
        await turns(after % 4)
        sent = await broker.send(queue, 3, key="one")
        await turns(after // 4)
        waiting.cancel()
        received: list[Delivery] = []
        try:
            received += await waiting
        except asyncio.CancelledError:
            pass
        received += await broker.receive(consumer, 3 - len(received))
        assert ids(received) == sent
        assert list(await consumer.ack(received)) == []
        await broker.nothing(consumer)

    async def test_a_cancelled_consumer_leaves_the_message_to_another(self, broker: Broker) -> None:
        broker.needs("competing")
        queue = await broker.queue("billing")
        leaving = await broker.consumer(queue, prefetch=1)
        staying = await broker.consumer(queue, prefetch=1)
        gone = asyncio.create_task(taking(leaving, 1, self.patience))
        await turns(3)
        waiting = asyncio.create_task(broker.receive(staying, 1))
        await turns(3)
        sent = await broker.send(queue)
        gone.cancel()
        await asyncio.wait([gone])
        await leaving.close()
        assert ids(await waiting) == sent

    async def test_competing_consumers_share_a_queue(
        self, broker: Broker, second_driver: Driver
    ) -> None:
        broker.needs("competing")
        broker.needs("partitioned", False)
        queue = await broker.queue("billing")
        one = await broker.consumer(queue, prefetch=5)
        two = await broker.consumer(queue, prefetch=5, driver=second_driver)
        sent = await broker.send(queue, 10)
        held = [*await broker.receive(one, 5), *await broker.receive(two, 5)]
        assert sorted(ids(held)) == sorted(sent)

    async def test_no_message_has_two_owners(self, broker: Broker, second_driver: Driver) -> None:
        broker.needs("competing")
        queue = await broker.queue("billing")
        consumers = [
            await broker.consumer(queue, prefetch=7, driver=driver)
            for driver in (broker.driver, second_driver, broker.driver)
        ]
        seen: list[str] = []
        enough = asyncio.Event()

        async def consume(index: int) -> None:
            while not enough.is_set():
                got = await consumers[index].receive(5, self.moment)
                seen.extend(ids(got))
                await asyncio.sleep(0)
                assert list(await consumers[index].ack(got)) == []
                if len(seen) >= 200:
                    enough.set()

        async with asyncio.timeout(self.patience * 2):
            async with asyncio.TaskGroup() as group:
                for index in range(len(consumers)):
                    group.create_task(consume(index))
                batches = [await broker.send(queue, 20) for _ in range(10)]
        assert sorted(seen) == sorted(id for batch in batches for id in batch)

    async def test_a_message_wakes_a_consumer_that_has_room(
        self, broker: Broker, second_driver: Driver
    ) -> None:
        broker.needs("competing")
        broker.needs("partitioned", False)
        queue = await broker.queue("billing")
        full = await broker.consumer(queue, prefetch=1)
        await broker.send(queue)
        await broker.receive(full, 1)
        blocked = asyncio.create_task(taking(full, 1, self.patience))
        await turns(3)
        free = await broker.consumer(queue, prefetch=1, driver=second_driver)
        waiting = asyncio.create_task(broker.receive(free, 1))
        await turns(3)
        sent = await broker.send(queue)
        assert ids(await waiting) == sent
        blocked.cancel()
        await asyncio.wait([blocked])

    async def test_what_is_given_back_wakes_as_many_as_it_takes(
        self, broker: Broker, second_driver: Driver
    ) -> None:
        broker.needs("competing")
        broker.needs("partitioned", False)
        queue = await broker.queue("billing")
        sent = await broker.send(queue, 4)
        leaving = await broker.consumer(queue)
        await broker.receive(leaving, 4)
        others = [
            await broker.consumer(queue, prefetch=1, driver=driver)
            for driver in (second_driver, broker.driver) * 2
        ]
        waiting = [asyncio.create_task(broker.receive(each, 1)) for each in others]
        await turns(3)
        await leaving.close()
        received = [each for task in waiting for each in await task]
        assert sorted(ids(received)) == sorted(sent)

    async def test_many_senders_at_once_each_keep_their_order(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        batches = [
            [broker.message(queue=queue.name, id=f"{sender}-{n}", key="one") for n in range(10)]
            for sender in range(10)
        ]
        async with asyncio.TaskGroup() as group:
            for batch in batches:
                group.create_task(broker.accepted(batch))
        consumer = await broker.consumer(queue)
        received = ids(await broker.receive(consumer, 100))
        for sender, batch in enumerate(batches):
            of_sender = [id for id in received if id.startswith(f"{sender}-")]
            assert of_sender == [message.id for message in batch]
