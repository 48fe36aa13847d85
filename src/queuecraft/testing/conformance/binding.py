"""What an operator changes: bindings that come and go while queue and messages stay."""

from __future__ import annotations

import pytest

from queuecraft.drivers.base import Binding, Driver, Rejected
from queuecraft.model.errors import QueueError, TopologyMismatch
from queuecraft.testing.conformance.broker import Broker, ids
from queuecraft.testing.conformance.suite import Suite


class BindingConformance(Suite):
    """A queue gets what it is bound to from then on, and no more once it is unbound.

    >>> issubclass(BindingConformance, Suite)
    True
    """

    async def test_a_queue_bound_later_gets_what_is_published_from_then_on(
        self, broker: Broker
    ) -> None:
        early = await broker.queue("early", "order.placed")
        late = await broker.queue("late")
        await broker.publish("order.placed")
        await broker.driver.bind(late.name, [Binding(broker.exchange(), "order.placed")])
        after = await broker.publish("order.placed")
        await broker.holds(late, after)
        assert len(await broker.driver.peek(early.name, 10)) == 2

    async def test_binding_makes_the_exchange(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        exchange = broker.exchange("new")
        await broker.driver.bind(queue.name, [Binding(exchange, "order.placed")])
        published = await broker.publish("order.placed", exchange=exchange.name)
        await broker.holds(queue, published)

    async def test_binding_again_changes_nothing(self, broker: Broker) -> None:
        queue = await broker.queue("billing", "order.placed")
        bindings = [Binding(broker.exchange(), each) for each in ("order.placed", "order.paid")]
        for _ in range(2):
            await broker.driver.bind(queue.name, bindings)
        published = await broker.publish("order.placed", "order.paid")
        consumer = await broker.consumer(queue)
        assert sorted(ids(await broker.receive(consumer, 2))) == sorted(published)
        await broker.nothing(consumer)

    async def test_a_binding_made_by_hand_is_seen_by_every_connection(
        self, broker: Broker, second_driver: Driver
    ) -> None:
        queue = await broker.queue("billing", "order.paid")
        binding = Binding(broker.exchange(), "order.placed")
        await second_driver.bind(queue.name, [binding])
        published = await broker.publish("order.placed")
        await broker.holds(queue, published)
        await second_driver.unbind(queue.name, [binding])
        (receipt,) = await broker.driver.send([broker.message("order.placed")])
        broker.unroutable(receipt)

    async def test_an_unbound_queue_keeps_its_messages_and_gets_no_more(
        self, broker: Broker
    ) -> None:
        queue = await broker.queue("billing", "order.placed", "order.paid")
        other = await broker.queue("audit", "order.placed")
        before = await broker.publish("order.placed")
        await broker.driver.unbind(queue.name, [Binding(broker.exchange(), "order.placed")])
        missed = await broker.publish("order.placed")
        paid = await broker.publish("order.paid")
        consumer = await broker.consumer(queue)
        received = await broker.receive(consumer, 2)
        assert sorted(ids(received)) == sorted(before + paid)
        await broker.nothing(consumer)
        await broker.holds(other, before + missed)

    async def test_an_event_whose_last_queue_is_unbound_is_unroutable(self, broker: Broker) -> None:
        queue = await broker.queue("billing", "order.placed")
        await broker.publish("order.placed")
        await broker.driver.unbind(queue.name, [Binding(broker.exchange(), "order.placed")])
        (receipt,) = await broker.driver.send([broker.message("order.placed")])
        broker.unroutable(receipt)

    async def test_unbinding_what_is_not_bound_changes_nothing(self, broker: Broker) -> None:
        queue = await broker.queue("billing", "order.placed")
        strangers = [
            Binding(broker.exchange(), "order.paid"),
            Binding(broker.exchange("unheard-of"), "order.placed"),
        ]
        await broker.driver.unbind(queue.name, strangers)
        published = await broker.publish("order.placed")
        await broker.holds(queue, published)

    async def test_an_unbound_exchange_stays(self, broker: Broker) -> None:
        queue = await broker.queue("billing", "order.placed")
        binding = Binding(broker.exchange(), "order.placed")
        await broker.driver.unbind(queue.name, [binding])
        await broker.driver.bind(queue.name, [binding])
        published = await broker.publish("order.placed")
        await broker.holds(queue, published)
        told = await broker.driver.topology()
        assert not told.exchanges or broker.name("events") in [each.name for each in told.exchanges]

    async def test_bindings_of_a_headers_exchange_are_told_apart_by_their_headers(
        self, broker: Broker
    ) -> None:
        broker.needs_exchange("headers")
        exchange = broker.exchange("headers", "headers")
        pdf, text = (Binding(exchange, "", {"format": each}) for each in ("pdf", "text"))
        queue = await broker.queue("reports")
        await broker.driver.bind(queue.name, [pdf, text])
        await broker.driver.unbind(queue.name, [pdf])
        published = await broker.publish("r", exchange=exchange.name, headers={"format": "text"})
        (receipt,) = await broker.driver.send(
            [broker.message("r", exchange=exchange.name, headers={"format": "pdf"})]
        )
        assert isinstance(receipt, Rejected)
        await broker.holds(queue, published)

    async def test_the_topology_tells_bindings_made_by_hand(self, broker: Broker) -> None:
        queue = await broker.queue("billing", "order.placed")
        await broker.driver.bind(queue.name, [Binding(broker.exchange(), "order.paid")])
        await broker.driver.unbind(queue.name, [Binding(broker.exchange(), "order.placed")])

        async def bound() -> list[str]:
            told = await broker.driver.topology()
            if not told.bindings:
                return ["order.paid"]
            return [binding.pattern for binding, name in told.bindings if name == queue.name]

        await broker.eventually(bound, ["order.paid"])

    async def test_an_exchange_of_another_type_cannot_be_bound_to(self, broker: Broker) -> None:
        broker.needs_exchange("topic", "fanout")
        queue = await broker.queue("billing", "order.placed")
        with pytest.raises(TopologyMismatch):
            await broker.driver.bind(
                queue.name, [Binding(broker.exchange("events", "fanout"), "order.paid")]
            )
        published = await broker.publish("order.placed")
        await broker.holds(queue, published)

    async def test_a_queue_that_does_not_exist_can_be_neither_bound_nor_unbound(
        self, broker: Broker
    ) -> None:
        missing = broker.name("missing")
        binding = Binding(broker.exchange(), "order.placed")
        with pytest.raises(QueueError):
            await broker.driver.bind(missing, [binding])
        with pytest.raises(QueueError):
            await broker.driver.unbind(missing, [binding])
        assert await broker.info(missing) is None
