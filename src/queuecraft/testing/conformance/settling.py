"""Letting go of messages: acknowledged, given back, or lost with their consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from queuecraft.drivers.base import ConnectionLost, Delivery, Driver, Subscription
from queuecraft.testing.conformance.broker import Broker, ids
from queuecraft.testing.conformance.suite import Suite


async def refuses(subscription: Subscription, deliveries: Sequence[Delivery]) -> None:
    """The subscription says that these are not its own: as stale, or as a lost connection."""
    try:
        stale = await subscription.ack(deliveries)
    except ConnectionLost:
        return
    assert list(stale) == list(deliveries)


class SettlingConformance(Suite):
    """Ack, release, close; and settling what is no longer ours.

    >>> issubclass(SettlingConformance, Suite)
    True
    """

    async def test_an_acked_message_is_gone(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        sent = await broker.send(queue, 3, key="one")
        consumer = await broker.consumer(queue)
        held = await broker.receive(consumer, 3)
        assert list(await consumer.ack(held[:2])) == []
        await consumer.close()
        await broker.holds(queue, sent[2:])

    async def test_messages_may_be_acked_in_any_order(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        sent = await broker.send(queue, 4, key="one")
        consumer = await broker.consumer(queue)
        one, two, three, four = await broker.receive(consumer, 4)
        assert list(await consumer.ack([three, one])) == []
        assert list(await consumer.ack([four])) == []
        await consumer.close()
        assert two.sent.id == sent[1]
        await broker.holds(queue, sent[1:2])

    async def test_acking_twice_tells_that_the_second_is_stale(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        await broker.send(queue, 2, key="one")
        consumer = await broker.consumer(queue)
        one, two = await broker.receive(consumer, 2)
        assert list(await consumer.ack([one])) == []
        assert list(await consumer.ack([one, two])) == [one]
        assert list(await consumer.ack([two])) == [two]

    async def test_settling_nothing_is_fine(self, broker: Broker) -> None:
        consumer = await broker.consumer(await broker.queue("billing"))
        assert list(await consumer.ack([])) == []
        assert list(await consumer.move([])) == []
        await consumer.release([])

    async def test_what_a_closed_consumer_held_comes_back_as_redelivered(
        self, broker: Broker
    ) -> None:
        queue = await broker.queue("billing")
        sent = await broker.send(queue, 3, key="one")
        lost = dict.fromkeys(sent, 0)
        for times in (1, 2):
            consumer = await broker.consumer(queue)
            held = await broker.receive(consumer, 2)
            if broker.traits.returns_to == "place":
                assert ids(held) == sent[:2]
                if broker.traits.counts_redeliveries:
                    assert [each.redeliveries for each in held] == [times - 1] * 2
            for delivery in held:
                lost[delivery.sent.id] += 1
            await consumer.close()
            await consumer.close()
        received = await broker.holds_again(queue, sent)
        if broker.traits.counts_redeliveries:
            assert [each.redeliveries for each in received] == [lost[each] for each in sent]

    async def test_a_closed_consumer_receives_no_more(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        consumer = await broker.consumer(queue)
        await consumer.close()
        sent = await broker.send(queue)
        with pytest.raises(ConnectionLost):
            await consumer.receive(1, 0)
        await broker.holds(queue, sent)

    async def test_a_stale_ack_changes_nothing(self, broker: Broker, second_driver: Driver) -> None:
        queue = await broker.queue("billing")
        sent = await broker.send(queue)
        first = await broker.consumer(queue)
        old = await broker.receive(first, 1)
        await first.close()
        second = await broker.consumer(queue, driver=second_driver)
        again = await broker.receive(second, 1)
        assert ids(again) == sent
        await refuses(first, old)
        await refuses(second, old)
        await second.close()
        await broker.holds(queue, sent)

    async def test_another_consumers_message_cannot_be_settled(
        self, broker: Broker, second_driver: Driver
    ) -> None:
        broker.needs("competing")
        queue = await broker.queue("billing")
        await broker.send(queue)
        owner = await broker.consumer(queue)
        other = await broker.consumer(queue, driver=second_driver)
        held = await broker.receive(owner, 1)
        await refuses(other, held)
        await other.release(held)
        await broker.nothing(other)
        assert list(await owner.ack(held)) == []

    async def test_released_messages_return_to_the_head_in_order(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        sent = await broker.send(queue, 5, key="one")
        consumer = await broker.consumer(queue, prefetch=3)
        held = await broker.receive(consumer, 3)
        assert ids(held) == sent[:3]
        await consumer.release(held)
        again = await broker.receive(consumer, 3)
        assert ids(again) == sent[:3]
        await consumer.release(again)
        await consumer.close()
        await broker.holds(queue, sent)

    async def test_a_release_counts_no_redelivery(self, broker: Broker) -> None:
        broker.needs("counts_redeliveries")
        queue = await broker.queue("billing")
        sent = await broker.send(queue)
        consumer = await broker.consumer(queue)
        for _ in range(3):
            (held,) = await broker.receive(consumer, 1)
            assert held.redeliveries == 0
            await consumer.release([held])
        await consumer.close()
        (received,) = await broker.holds(queue, sent)
        assert received.redeliveries == 0

    async def test_releasing_some_keeps_the_others_held(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        sent = await broker.send(queue, 4, key="one")
        consumer = await broker.consumer(queue, prefetch=3)
        one, two, three = await broker.receive(consumer, 3)
        await consumer.release([two, three])
        again = await broker.receive(consumer, 2)
        assert ids(again) == sent[1:3]
        assert list(await consumer.ack([one, *again])) == []
        await consumer.close()
        await broker.holds(queue, sent[3:])

    async def test_a_single_active_consumer_leaves_everything_to_the_next_in_order(
        self, broker: Broker, second_driver: Driver
    ) -> None:
        broker.needs("key_order", "group")
        queue = await broker.queue("billing", single_active=True)
        sent = await broker.send(queue, 7, key="one")
        first = await broker.consumer(queue, prefetch=4)
        held, *rest = await broker.receive(first, 4)
        await first.release(rest)
        again = await broker.receive(first, 2)
        assert ids([held, *again]) == sent[:3]
        await first.release(again[1:])
        await first.close()
        second = await broker.consumer(queue, prefetch=4, driver=second_driver)
        received: list[str] = []
        while len(received) < len(sent):
            one = await broker.receive(second, 1)
            received += ids(one)
            assert list(await second.ack(one)) == []
        assert received == sent

    async def test_a_released_message_is_no_longer_ours(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        sent = await broker.send(queue)
        consumer = await broker.consumer(queue)
        held = await broker.receive(consumer, 1)
        await consumer.release([*held, *held])
        await consumer.release(held)
        assert list(await consumer.ack(held)) == held
        await consumer.close()
        await broker.holds(queue, sent)

    async def test_releasing_what_was_acked_does_not_bring_it_back(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        await broker.send(queue)
        consumer = await broker.consumer(queue)
        held = await broker.receive(consumer, 1)
        await consumer.ack(held)
        await consumer.release(held)
        await consumer.close()
        await broker.holds(queue, [])

    async def test_who_gives_back_and_does_not_receive_keeps_nothing_from_others(
        self, broker: Broker, second_driver: Driver
    ) -> None:
        """A worker that pauses: what comes for it meanwhile is for others, that it held nothing is
        no reason to leave it with it."""
        broker.needs("competing")
        broker.needs("partitioned", False)
        queue = await broker.queue("billing")
        consumer = await broker.consumer(queue, prefetch=5)
        await broker.nothing(consumer)
        receiving = asyncio.ensure_future(consumer.receive(5, 60.0))
        await asyncio.sleep(0.05)
        receiving.cancel()
        await asyncio.wait([receiving])
        await consumer.release([])
        sent = await broker.send(queue, 4, key="one")
        other = await broker.consumer(queue, driver=second_driver)
        held = await broker.receive(other, 4)
        assert ids(held) == sent
        assert [each.redeliveries for each in held] == [0] * 4
        assert list(await other.ack(held[:3])) == []
        await other.release(held[3:])
        await other.close()
        assert ids(await broker.receive(consumer, 1)) == sent[3:]

    async def test_a_release_makes_room(self, broker: Broker) -> None:
        broker.needs("competing")
        broker.needs("partitioned", False)
        queue = await broker.queue("billing")
        await broker.send(queue, 2, key="one")
        consumer = await broker.consumer(queue, prefetch=1)
        other = await broker.consumer(queue, prefetch=1)
        held = await broker.receive(consumer, 1)
        elsewhere = await broker.receive(other, 1)
        await consumer.release(held)
        again = await broker.receive(consumer, 1)
        assert ids(again) == ids(held)
        assert list(await other.ack(elsewhere)) == []
