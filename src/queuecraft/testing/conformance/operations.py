"""What an operator asks: inspect, peek, purge, delete, topology."""

from __future__ import annotations

import time

import pytest

from queuecraft.drivers.base import ACCEPTED, Delivery, Rejected
from queuecraft.testing.conformance.broker import Broker, ids
from queuecraft.testing.conformance.moving import towards
from queuecraft.testing.conformance.suite import Suite


class OperationsConformance(Suite):
    """The numbers are right or absent, looking changes nothing, removing removes that only.

    >>> issubclass(OperationsConformance, Suite)
    True
    """

    async def test_inspect_counts_what_is_ready_held_and_delayed(self, broker: Broker) -> None:
        queue = await broker.queue("billing", dead_letters=True)
        await broker.counts(queue, ready=0, in_flight=0, delayed=0, dead=0, consumers=0)
        await broker.send(queue, 4)
        await broker.send(queue, 2, due_at=time.time() + 3600)
        await broker.counts(queue, ready=4, in_flight=0, delayed=2, consumers=0)
        consumer = await broker.consumer(queue, prefetch=1)
        held = await broker.receive(consumer, 1)
        if broker.traits.tells_held:
            await broker.counts(queue, ready=3, in_flight=1, delayed=2, consumers=1)
        else:
            await broker.counts(queue, ready=4, delayed=2, consumers=1)
        await consumer.ack(held)
        await consumer.close()
        await broker.counts(queue, ready=3, in_flight=0, delayed=2, consumers=0)

    async def test_inspect_counts_dead_letters(self, broker: Broker) -> None:
        queue = await broker.queue("billing", dead_letters=True)
        target = queue.dead_letters
        assert target is not None
        await broker.send(queue, 2)
        consumer = await broker.consumer(queue)
        held = await broker.receive(consumer, 2)
        dead = {"queue": None, "exchange": target.exchange, "routing_key": target.routing_key}
        receipts = await consumer.move([towards(each, **dead) for each in held])
        assert list(receipts) == [ACCEPTED, ACCEPTED]
        await broker.counts(queue, ready=0, in_flight=0, dead=2)
        await broker.counts(target.queue, ready=2, in_flight=0)

    async def test_inspect_tells_how_long_the_oldest_message_waits(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        empty = await broker.info(queue)
        assert empty is not None
        assert empty.oldest_age is None
        before = time.time()
        await broker.send(queue, timestamp=before)
        await broker.counts(queue, ready=1)
        info = await broker.info(queue)
        assert info is not None
        assert info.oldest_age is None or 0 <= info.oldest_age <= time.time() - before + 1

    async def test_inspect_leaves_out_what_does_not_exist(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        missing = broker.name("missing")
        found = await broker.driver.inspect([missing, queue.name])
        assert [each.name for each in found] == [queue.name]
        everything = [each.name for each in await broker.driver.inspect()]
        assert everything.count(queue.name) == 1
        assert missing not in everything

    async def test_the_dead_letter_queue_is_declared_with_the_queue(self, broker: Broker) -> None:
        queue = await broker.queue("billing", "order.placed", dead_letters=True)
        target = queue.dead_letters
        assert target is not None
        assert await broker.info(target.queue) is not None
        sent = await broker.publish(target.routing_key, exchange=target.exchange)
        await broker.holds(target.queue, sent)

    async def test_two_queues_may_share_a_dead_letter_exchange(self, broker: Broker) -> None:
        one = await broker.queue("one", dead_letters=True)
        two = await broker.queue("two", dead_letters=True)
        assert one.dead_letters is not None
        assert two.dead_letters is not None
        sent = await broker.publish(
            one.dead_letters.routing_key, exchange=one.dead_letters.exchange
        )
        await broker.holds(one.dead_letters.queue, sent)
        await broker.holds(two.dead_letters.queue, [])

    async def test_peeking_shows_the_next_messages_and_takes_none(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        sent = await broker.send(queue, 4, key="one", body=b"look", headers={"n": 1})
        for _ in range(2):
            seen = await broker.driver.peek(queue.name, 3)
            assert ids(seen) == sent[:3]
            assert bytes(seen[0].sent.body) == b"look"
            assert dict(seen[0].sent.headers) == {"n": 1}
            assert seen[0].queue == queue.name
        assert ids(await broker.driver.peek(queue.name, 100)) == sent
        received = await broker.holds(queue, sent)
        if broker.traits.peek == "clean" and broker.traits.counts_redeliveries:
            assert [each.redeliveries for each in received] == [0] * 4

    async def test_peeking_into_an_empty_queue_shows_nothing(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        assert list(await broker.driver.peek(queue.name, 10)) == []

    async def test_a_peeked_message_cannot_be_settled(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        sent = await broker.send(queue)
        peeked: list[Delivery] = list(await broker.driver.peek(queue.name, 1))
        consumer = await broker.consumer(queue)
        await broker.receive(consumer, 1)
        assert list(await consumer.ack(peeked)) == peeked
        await consumer.release(peeked)
        await broker.nothing(consumer)
        await consumer.close()
        await broker.holds(queue, sent)

    async def test_purging_forgets_what_is_ready_and_nothing_else(self, broker: Broker) -> None:
        broker.needs("tells_held")
        queue = await broker.queue("billing")
        (first, *_) = await broker.send(queue, 4, key="one")
        due = time.time() + self.moment * 3
        later = await broker.send(queue, due_at=due)
        consumer = await broker.consumer(queue, prefetch=1)
        held = await broker.receive(consumer, 1)
        assert ids(held) == [first]
        assert await broker.driver.purge(queue.name) == 3
        await consumer.close()
        received = await broker.receive(await broker.consumer(queue), 2)
        assert ids(received) == [first, *later]

    async def test_purging_forgets_what_nobody_has_taken(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        await broker.send(queue, 3)
        await broker.counts(queue, ready=3)
        assert await broker.driver.purge(queue.name) == 3
        await broker.holds(queue, await broker.send(queue))

    async def test_purging_an_empty_queue_forgets_nothing(self, broker: Broker) -> None:
        queue = await broker.queue("billing", "order.placed")
        assert await broker.driver.purge(queue.name) == 0
        published = await broker.publish("order.placed")
        await broker.holds(queue, published)

    async def test_a_deleted_queue_is_gone_with_its_bindings_and_messages(
        self, broker: Broker
    ) -> None:
        queue = await broker.queue("billing", "order.placed", dead_letters=True)
        other = await broker.queue("audit", "order.placed")
        published = await broker.publish("order.placed")
        due = time.time() + self.moment
        if not broker.traits.delays_apart:
            await broker.send(queue, due_at=due)
        await broker.driver.delete(queue.name)
        assert await broker.info(queue) is None
        (receipt,) = await broker.driver.send([broker.message(queue=queue.name)])
        assert isinstance(receipt, Rejected)
        await broker.holds(other, published)
        await broker.queue("billing", "order.paid")
        published = await broker.publish("order.placed")
        # When this one comes, the one delayed for the queue of old would have come before it.
        later = await broker.send(queue, due_at=due + self.moment)
        await broker.holds(queue, later)
        await broker.holds(other, published)

    async def test_deleting_a_queue_keeps_its_dead_letters(self, broker: Broker) -> None:
        queue = await broker.queue("billing", dead_letters=True)
        target = queue.dead_letters
        assert target is not None
        sent = await broker.publish(target.routing_key, exchange=target.exchange)
        await broker.driver.delete(queue.name)
        await broker.holds(target.queue, sent)

    async def test_the_topology_tells_what_was_declared(self, broker: Broker) -> None:
        queue = await broker.queue("billing", "order.placed", "order.paid")
        await broker.consumer(queue, prefetch=7)

        async def seen() -> tuple[bool, bool, bool, bool]:
            told = await broker.driver.topology()
            bound = {
                (binding.exchange.name, binding.pattern)
                for binding, name in told.bindings
                if name == queue.name
            }
            events = broker.name("events")
            return (
                queue.name in told.queues,
                not told.exchanges or events in [each.name for each in told.exchanges],
                not told.bindings or bound == {(events, "order.placed"), (events, "order.paid")},
                not told.consumers
                or [each.prefetch for each in told.consumers if each.queue == queue.name]
                in ([7], [None]),
            )

        await broker.eventually(seen, (True, True, True, True))

    async def test_the_topology_tells_where_dead_letters_go(self, broker: Broker) -> None:
        queue = await broker.queue("billing", dead_letters=True)
        assert queue.dead_letters is not None
        told = await broker.driver.topology()
        assert not told.dead_letters or (queue.name, queue.dead_letters.queue) in told.dead_letters

    async def test_the_topology_forgets_what_was_deleted(self, broker: Broker) -> None:
        queue = await broker.queue("billing", "order.placed")
        await broker.driver.delete(queue.name)
        told = await broker.driver.topology()
        assert queue.name not in told.queues
        assert [name for _, name in told.bindings if name == queue.name] == []

    @pytest.mark.parametrize("limit", [1, 2])
    async def test_a_held_message_is_not_peeked_at(self, broker: Broker, limit: int) -> None:
        broker.needs("tells_held")
        queue = await broker.queue("billing")
        _, second = await broker.send(queue, 2, key="one")
        consumer = await broker.consumer(queue, prefetch=1)
        await broker.receive(consumer, 1)
        assert ids(await broker.driver.peek(queue.name, limit)) == [second]
