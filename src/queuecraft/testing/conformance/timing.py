"""When messages come: delays, priorities, expiry."""

from __future__ import annotations

import time

import pytest

from queuecraft.drivers.base import Rejected
from queuecraft.testing.conformance.broker import Broker, ids
from queuecraft.testing.conformance.suite import Suite

DAY = 24 * 3600.0


class TimingConformance(Suite):
    """Never early, the most urgent first.

    >>> issubclass(TimingConformance, Suite)
    True
    """

    @pytest.mark.parametrize("share", [0.1, 1.0, 2.345])
    async def test_a_delayed_message_comes_and_is_never_early(
        self, broker: Broker, share: float
    ) -> None:
        queue = await broker.queue("billing", "order.placed")
        consumer = await broker.consumer(queue)
        due = time.time() + self.moment * share
        published = await broker.publish("order.placed", due_at=due)
        (delivery,) = await broker.receive(consumer, 1)
        assert time.time() >= due, "a delayed message came early"
        assert ids([delivery]) == published
        assert delivery.sent.due_at == pytest.approx(due, abs=0.001)
        assert delivery.redeliveries == 0
        await consumer.ack([delivery])
        await broker.nothing(consumer)

    async def test_a_delayed_message_reaches_every_bound_queue(self, broker: Broker) -> None:
        one = await broker.queue("one", "order.placed")
        two = await broker.queue("two", "order.*")
        due = time.time() + self.moment
        published = await broker.publish("order.placed", due_at=due)
        await broker.holds(one, published)
        await broker.holds(two, published)
        assert time.time() >= due

    async def test_a_delayed_message_may_be_sent_straight_to_a_queue(self, broker: Broker) -> None:
        queue = await broker.queue("billing", "order.placed")
        other = await broker.queue("other", "order.placed")
        due = time.time() + self.moment
        sent = await broker.send(queue, due_at=due, routing_key="order.placed")
        await broker.holds(queue, sent)
        assert time.time() >= due
        await broker.holds(other, [])

    async def test_a_time_that_has_passed_is_now(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        sent = await broker.send(queue, due_at=time.time() - 60)
        sent += await broker.send(queue, due_at=time.time())
        received = await broker.receive(await broker.consumer(queue), 2)
        assert sorted(ids(received)) == sorted(sent)

    async def test_what_is_due_now_is_ready_once_it_is_stored(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        for number in range(1, 21):
            await broker.send(queue, due_at=time.time())
            info = await broker.info(queue)
            assert info is not None
            if info.ready is not None:
                assert info.ready == number
            assert not info.delayed

    async def test_delayed_messages_hold_up_nobody(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        later = await broker.send(queue, 3, due_at=time.time() + self.moment * 3, key="one")
        now = await broker.send(queue, 3, key="one")
        consumer = await broker.consumer(queue)
        assert ids(await broker.receive(consumer, 3)) == now
        assert sorted(ids(await broker.receive(consumer, 3))) == sorted(later)

    async def test_delayed_messages_come_in_the_order_they_are_due(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        start = time.time() + self.moment
        (third,) = await broker.send(queue, due_at=start + self.moment * 4)
        (first,) = await broker.send(queue, due_at=start)
        (second,) = await broker.send(queue, due_at=start + self.moment * 2)
        received = await broker.receive(await broker.consumer(queue), 3)
        assert ids(received) == [first, second, third]

    async def test_a_short_delay_is_not_held_up_by_a_long_one(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        await broker.send(queue, due_at=time.time() + DAY)
        soon = await broker.send(queue, due_at=time.time() + self.moment)
        await broker.holds(queue, soon)

    async def test_a_delay_outlives_the_consumers(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        consumer = await broker.consumer(queue)
        due = time.time() + self.moment
        sent = await broker.send(queue, due_at=due)
        await consumer.close()
        await broker.holds(queue, sent)
        assert time.time() >= due

    @pytest.mark.parametrize("days", [1, 60, 3650])
    async def test_a_delay_may_be_long(self, broker: Broker, days: int) -> None:
        queue = await broker.queue("billing")
        due = time.time() + days * DAY
        if days * DAY > broker.traits.max_delay:
            (receipt,) = await broker.driver.send([broker.message(queue=queue.name, due_at=due)])
            assert isinstance(receipt, Rejected)
            await broker.counts(queue, ready=0, delayed=0)
        else:
            await broker.send(queue, due_at=due)
            await broker.counts(queue, ready=0, delayed=1)
        await broker.holds(queue, [])

    async def test_many_delayed_messages_come_once_each(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        start = time.time()
        due = {f"d-{n}": start + self.moment * (n * 7 % 200) / 50 for n in range(200)}
        await broker.accepted(
            [broker.message(queue=queue.name, id=id, due_at=at) for id, at in due.items()]
        )
        consumer = await broker.consumer(queue)
        seen: list[str] = []
        while len(seen) < len(due):
            some = await broker.receive(consumer, 1)
            now = time.time()
            assert [each for each in ids(some) if due[each] > now] == [], "early"
            seen += ids(some)
            await consumer.ack(some)
        assert sorted(seen) == sorted(due)
        await broker.nothing(consumer)

    async def test_the_most_urgent_comes_first(self, broker: Broker) -> None:
        broker.needs("priority")
        queue = await broker.queue("billing", "order.placed", max_priority=9)
        sent = {
            priority: await broker.publish(*["order.placed"] * 2, priority=priority)
            for priority in (1, 0, 9, 5)
        }
        received = await broker.holds(queue, sent[9] + sent[5] + sent[1] + sent[0])
        assert [each.sent.priority for each in received] == [9, 9, 5, 5, 1, 1, 0, 0]

    async def test_what_goes_back_keeps_its_priority(self, broker: Broker) -> None:
        broker.needs("priority")
        queue = await broker.queue("billing", max_priority=9)
        usual = await broker.send(queue, 2)
        urgent = await broker.send(queue, 2, priority=5)
        consumer = await broker.consumer(queue, prefetch=3)
        held = await broker.receive(consumer, 3)
        assert ids(held) == urgent + usual[:1]
        await consumer.release(held[1:])
        await consumer.close()
        await broker.holds_again(queue, urgent + usual)

    async def test_an_expiry_travels_with_the_message(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        expires = time.time() + 60
        sent = await broker.send(queue, expires_at=expires, due_at=time.time() + self.moment)
        (delivery,) = await broker.holds(queue, sent)
        assert delivery.sent.expires_at == pytest.approx(expires, abs=0.001)
