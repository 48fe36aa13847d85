"""Who gets a message: exchanges, bindings, queues."""

from __future__ import annotations

import pytest

from queuecraft.drivers.base import ACCEPTED, Binding, Rejected
from queuecraft.model.errors import PublishError, TopologyMismatch
from queuecraft.testing.conformance.broker import Broker, ids
from queuecraft.testing.conformance.suite import Suite

TOPICS = {
    "order.placed": {"order.placed"},
    "order.*": {"order.placed", "order.paid"},
    "*.placed": {"order.placed", "offer.placed"},
    "*": {"order"},
    "order.#": {"order", "order.placed", "order.paid", "order.item.added"},
    "#.added": {"order.item.added"},
    "order.#.added": {"order.item.added"},
    "*.*.*": {"order.item.added"},
    "#": {"order", "order.placed", "order.paid", "order.item.added", "offer.placed"},
    "order.*.#": {"order.placed", "order.paid", "order.item.added"},
}
"""Patterns, and which of these events each takes."""

MANY = 100  # so many that a driver may keep them in another way


class RoutingConformance(Suite):
    """Exchanges of each type, bindings, and messages nobody takes.

    >>> issubclass(RoutingConformance, Suite)
    True
    """

    async def test_a_topic_exchange_matches_word_by_word(self, broker: Broker) -> None:
        broker.needs_exchange("topic")
        queues = {pattern: await broker.queue(f"q{n}", pattern) for n, pattern in enumerate(TOPICS)}
        events = sorted(TOPICS["#"])
        await broker.publish(*events)
        for pattern, taken in TOPICS.items():
            consumer = await broker.consumer(queues[pattern])
            got = await broker.receive(consumer, len(taken))
            assert sorted(each.sent.routing_key for each in got) == sorted(taken), pattern
            await broker.nothing(consumer)

    async def test_a_direct_exchange_matches_the_whole_key(self, broker: Broker) -> None:
        broker.needs_exchange("direct")
        exchange = broker.exchange("direct", "direct")
        placed = await broker.queue("placed", "order.placed", exchange=exchange)
        star = await broker.queue("star", "order.*", exchange=exchange)
        published = await broker.publish("order.placed", "order.*", exchange=exchange.name)
        await broker.holds(placed, published[:1])
        await broker.holds(star, published[1:])

    async def test_a_fanout_exchange_gives_everything_to_everyone(self, broker: Broker) -> None:
        broker.needs_exchange("fanout")
        exchange = broker.exchange("fanout", "fanout")
        one = await broker.queue("one", "a", exchange=exchange)
        two = await broker.queue("two", "b", exchange=exchange)
        published = await broker.publish("whatever", "b", exchange=exchange.name)
        await broker.holds(one, published)
        await broker.holds(two, published)

    async def test_a_headers_exchange_matches_all_or_any_of_the_headers(
        self, broker: Broker
    ) -> None:
        broker.needs_exchange("headers")
        exchange = broker.exchange("headers", "headers")
        wanted = {"format": "pdf", "pages": 2}
        every = await broker.queue(
            "every", bindings=(Binding(exchange, "", {"x-match": "all", **wanted}),)
        )
        some = await broker.queue(
            "some", bindings=(Binding(exchange, "", {"x-match": "any", **wanted}),)
        )
        unsaid = await broker.queue("unsaid", bindings=(Binding(exchange, "", wanted),))
        # One batch, one routing key: only the headers tell the messages apart.
        neither, half, whole = messages = [
            broker.message("report", exchange=exchange.name, headers=headers)
            for headers in ({}, {"format": "pdf", "pages": 3}, {**wanted, "more": "is fine"})
        ]
        receipts = await broker.driver.send(messages)
        assert isinstance(receipts[0], Rejected), f"{neither.headers} matches no binding"
        assert list(receipts[1:]) == [ACCEPTED, ACCEPTED]
        await broker.holds(every, [whole.id])
        await broker.holds(some, [half.id, whole.id])
        await broker.holds(unsaid, [whole.id])

    async def test_an_event_reaches_every_bound_queue_once(self, broker: Broker) -> None:
        twice = await broker.queue("twice", "order.placed", "order.*", "#")
        once = await broker.queue("once", "order.placed")
        published = await broker.publish("order.placed")
        await broker.holds(twice, published)
        await broker.holds(once, published)

    async def test_a_queue_may_be_bound_to_several_exchanges(self, broker: Broker) -> None:
        one, other = broker.exchange("one"), broker.exchange("other")
        both = await broker.queue(
            "both", bindings=(Binding(one, "order.placed"), Binding(other, "order.placed"))
        )
        first = await broker.publish("order.placed", exchange=one.name)
        second = await broker.publish("order.placed", exchange=other.name)
        consumer = await broker.consumer(both)
        received = await broker.receive(consumer, 2)
        assert sorted(ids(received)) == sorted(first + second)

    async def test_an_exchange_may_have_many_bindings_that_come_and_go(
        self, broker: Broker
    ) -> None:
        many = await broker.queue("many", *(f"order.{number}" for number in range(MANY)))
        wild = await broker.queue("wild", "order.*")
        first = await broker.publish("order.7", "order.8")
        await broker.driver.unbind(many.name, [Binding(broker.exchange(), "order.7")])
        without = await broker.publish("order.7", "order.8")
        late = await broker.queue("late", "order.7")
        after = await broker.publish("order.7", "order.8")
        await broker.holds(many, [*first, without[1], after[1]])
        await broker.holds(wild, [*first, *without, *after])
        await broker.holds(late, after[:1])

    async def test_exchanges_do_not_mix(self, broker: Broker) -> None:
        one, other = broker.exchange("one"), broker.exchange("other")
        of_one = await broker.queue("of-one", "order.placed", exchange=one)
        of_other = await broker.queue("of-other", "order.placed", exchange=other)
        first = await broker.publish("order.placed", exchange=one.name)
        await broker.holds(of_one, first)
        await broker.holds(of_other, [])

    async def test_a_binding_outlives_its_consumers(self, broker: Broker) -> None:
        queue = await broker.queue("billing", "order.placed")
        consumer = await broker.consumer(queue)
        await consumer.close()
        published = await broker.publish("order.placed")
        await broker.holds(queue, published)

    async def test_an_event_reaches_a_queue_that_never_had_a_consumer(self, broker: Broker) -> None:
        queue = await broker.queue("billing", "order.placed")
        published = await broker.publish(*["order.placed"] * 3)
        await broker.holds(queue, published)

    async def test_an_event_does_not_reach_a_queue_declared_later(self, broker: Broker) -> None:
        await broker.queue("early", "order.placed")
        await broker.publish("order.placed")
        late = await broker.queue("late", "order.placed")
        after = await broker.publish("order.placed")
        await broker.holds(late, after)

    async def test_declaring_again_changes_nothing(self, broker: Broker) -> None:
        queue = await broker.queue("billing", "order.placed", dead_letters=True)
        before = await broker.publish("order.placed")
        await broker.driver.declare(queue)
        after = await broker.publish("order.placed")
        await broker.holds(queue, before + after)

    async def test_declaring_again_adds_bindings_and_removes_none(self, broker: Broker) -> None:
        queue = await broker.queue("billing", "order.placed")
        await broker.queue("billing", "order.paid")
        await broker.queue("billing")
        published = await broker.publish("order.placed", "order.paid")
        consumer = await broker.consumer(queue)
        received = await broker.receive(consumer, 2)
        assert sorted(ids(received)) == sorted(published)

    async def test_an_exchange_of_another_type_is_a_mismatch(self, broker: Broker) -> None:
        broker.needs_exchange("topic", "fanout")
        await broker.queue("billing", "order.placed", exchange=broker.exchange("events", "topic"))
        with pytest.raises(TopologyMismatch):
            await broker.queue("audit", "x", exchange=broker.exchange("events", "fanout"))
        with pytest.raises(TopologyMismatch):
            await broker.driver.prepare([broker.exchange("events", "fanout")])

    async def test_a_queue_with_other_properties_is_a_mismatch(self, broker: Broker) -> None:
        broker.needs("priority")
        queue = await broker.queue("billing", "order.placed", max_priority=5)
        published = await broker.publish("order.placed")
        with pytest.raises(TopologyMismatch):
            await broker.driver.declare(broker.describe("billing", max_priority=9))
        await broker.holds(queue, published)

    async def test_a_publisher_prepares_exchanges_but_no_queues(self, broker: Broker) -> None:
        exchange = broker.exchange()
        await broker.driver.prepare([exchange])
        await broker.driver.prepare([exchange])
        (receipt,) = await broker.driver.send([broker.message("order.placed")])
        broker.unroutable(receipt)
        queue = await broker.queue("billing", "order.placed")
        published = await broker.publish("order.placed")
        await broker.holds(queue, published)

    async def test_an_unroutable_message_is_rejected_and_its_neighbours_are_not(
        self, broker: Broker
    ) -> None:
        queue = await broker.queue("billing", "order.placed")
        first, stray, last = messages = [
            broker.message(event) for event in ("order.placed", "nobody.cares", "order.placed")
        ]
        receipts = await broker.driver.send(messages)
        assert receipts[0] is ACCEPTED
        assert receipts[2] is ACCEPTED
        broker.unroutable(receipts[1], stray)
        await broker.holds(queue, [first.id, last.id])

    async def test_a_message_to_a_queue_reaches_that_queue_alone(self, broker: Broker) -> None:
        billing = await broker.queue("billing", "order.placed")
        audit = await broker.queue("audit", "order.placed")
        sent = await broker.send(billing, routing_key="order.placed")
        (delivery,) = await broker.holds(billing, sent)
        assert delivery.sent.routing_key == "order.placed"
        await broker.holds(audit, [])

    async def test_a_message_to_a_missing_queue_is_rejected_and_its_neighbours_are_not(
        self, broker: Broker
    ) -> None:
        queue = await broker.queue("billing")
        first, stray, last = messages = [
            broker.message(queue=name) for name in (queue.name, broker.name("missing"), queue.name)
        ]
        receipts = await broker.driver.send(messages)
        assert receipts[0] is ACCEPTED
        assert receipts[2] is ACCEPTED
        assert isinstance(receipts[1], Rejected)
        assert isinstance(receipts[1].error, PublishError)
        assert receipts[1].error.message_id == stray.id
        await broker.holds(queue, [first.id, last.id])

    async def test_messages_for_many_places_travel_in_one_batch(self, broker: Broker) -> None:
        billing = await broker.queue("billing", "order.placed")
        audit = await broker.queue("audit", "order.*")
        placed, direct, paid, again = messages = [
            broker.message("order.placed"),
            broker.message("order.placed", queue=billing.name),
            broker.message("order.paid"),
            broker.message("order.placed"),
        ]
        await broker.accepted(messages)
        of_billing = await broker.receive(await broker.consumer(billing), 3)
        of_audit = await broker.receive(await broker.consumer(audit), 3)
        assert sorted(ids(of_billing)) == sorted([placed.id, direct.id, again.id])
        assert sorted(ids(of_audit)) == sorted([placed.id, paid.id, again.id])

    async def test_an_empty_batch_has_no_answers(self, broker: Broker) -> None:
        assert list(await broker.driver.send([])) == []

    async def test_an_atomic_batch_is_stored_whole(self, broker: Broker) -> None:
        broker.needs("atomic_send")
        queue = await broker.queue("billing", "order.placed")
        messages = [broker.message("order.placed") for _ in range(3)]
        assert list(await broker.driver.send(messages, atomic=True)) == [ACCEPTED] * 3
        await broker.holds(queue, [each.id for each in messages])

    async def test_an_atomic_batch_is_stored_not_at_all_if_one_cannot_be(
        self, broker: Broker
    ) -> None:
        broker.needs("atomic_send")
        queue = await broker.queue("billing", "order.placed")
        messages = [
            broker.message(event) for event in ("order.placed", "nobody.cares", "order.placed")
        ]
        receipts = await broker.driver.send(messages, atomic=True)
        assert [type(each) for each in receipts] == [Rejected] * 3
        await broker.holds(queue, [])
