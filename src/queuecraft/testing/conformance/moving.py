"""Moves: how retries, dead letters and redrives travel."""

from __future__ import annotations

import time
from typing import Any

from msgspec.structs import replace

from queuecraft.drivers.base import ACCEPTED, ConnectionLost, Delivery, Move, Outgoing, Rejected
from queuecraft.testing.conformance.broker import Broker, ids
from queuecraft.testing.conformance.suite import Suite


def towards(delivery: Delivery, **changes: Any) -> Move:
    """Move a delivery as it is, but for these changes."""
    to: Outgoing = replace(delivery.sent, **{"exchange": "", "due_at": None, **changes})
    return Move(delivery, to)


class MovingConformance(Suite):
    """To another queue, to the same one later, to the dead letters, or nowhere.

    >>> issubclass(MovingConformance, Suite)
    True
    """

    async def test_a_moved_message_leaves_its_queue_for_the_other(self, broker: Broker) -> None:
        here, there = await broker.queue("here", "order.placed"), await broker.queue("there")
        sent = await broker.publish(
            "order.placed", body=b"\x00\xff", headers={"tenant": "acme", "count": 1}, key="k"
        )
        consumer = await broker.consumer(here)
        (held,) = await broker.receive(consumer, 1)
        receipts = await consumer.move(
            [towards(held, queue=there.name, headers={**held.sent.headers, "count": 2})]
        )
        assert list(receipts) == [ACCEPTED]
        assert list(await consumer.ack([held])) == [held]
        await consumer.close()
        await broker.holds(here, [])
        (moved,) = await broker.holds(there, sent)
        assert bytes(moved.sent.body) == b"\x00\xff"
        assert dict(moved.sent.headers) == {"tenant": "acme", "count": 2}
        assert (moved.sent.routing_key, moved.sent.key) == ("order.placed", "k")
        assert moved.redeliveries == 0

    async def test_a_retry_comes_back_to_the_same_queue_and_no_other(self, broker: Broker) -> None:
        billing = await broker.queue("billing", "order.placed")
        audit = await broker.queue("audit", "order.placed")
        sent = await broker.publish("order.placed")
        consumer = await broker.consumer(billing)
        (held,) = await broker.receive(consumer, 1)
        due = time.time() + self.moment
        (receipt,) = await consumer.move([towards(held, queue=billing.name, due_at=due)])
        assert receipt is ACCEPTED
        (again,) = await broker.receive(consumer, 1)
        assert time.time() >= due, "a retry came early"
        assert again.sent.id == held.sent.id
        assert again.redeliveries == 0
        assert list(await consumer.ack([again])) == []
        await broker.holds(audit, sent)

    async def test_a_dead_letter_goes_through_its_exchange(self, broker: Broker) -> None:
        queue = await broker.queue("billing", "order.placed", dead_letters=True)
        target = queue.dead_letters
        assert target is not None
        sent = await broker.publish("order.placed", body=b"poison", headers={"tenant": "acme"})
        consumer = await broker.consumer(queue)
        (held,) = await broker.receive(consumer, 1)
        (receipt,) = await consumer.move(
            [towards(held, exchange=target.exchange, routing_key=target.routing_key, queue=None)]
        )
        assert receipt is ACCEPTED
        await broker.counts(queue, ready=0, in_flight=0, dead=1)
        (dead,) = await broker.holds(target.queue, sent)
        assert bytes(dead.sent.body) == b"poison"
        assert dict(dead.sent.headers) == {"tenant": "acme"}

    async def test_a_move_that_is_rejected_keeps_the_message_held(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        sent = await broker.send(queue)
        consumer = await broker.consumer(queue, prefetch=1)
        (held,) = await broker.receive(consumer, 1)
        (receipt,) = await consumer.move([towards(held, queue=broker.name("missing"))])
        assert isinstance(receipt, Rejected)
        await broker.nothing(consumer)
        await consumer.close()
        (again,) = await broker.holds(queue, sent)
        if broker.traits.counts_redeliveries:
            assert again.redeliveries == 1

    async def test_each_move_of_a_batch_has_its_own_answer(self, broker: Broker) -> None:
        here, there = await broker.queue("here"), await broker.queue("there")
        sent = await broker.send(here, 3, key="one")
        consumer = await broker.consumer(here)
        one, two, three = await broker.receive(consumer, 3)
        receipts = await consumer.move(
            [
                towards(one, queue=there.name),
                towards(two, queue=broker.name("missing")),
                towards(three, queue=there.name),
            ]
        )
        assert receipts[0] is ACCEPTED
        assert isinstance(receipts[1], Rejected)
        assert receipts[2] is ACCEPTED
        assert list(await consumer.ack([two])) == []
        await consumer.close()
        await broker.holds(here, [])
        await broker.holds(there, [sent[0], sent[2]])

    async def test_what_a_rejected_move_keeps_goes_back_in_order(self, broker: Broker) -> None:
        queue = await broker.queue("billing")
        sent = await broker.send(queue, 3, key="one")
        consumer = await broker.consumer(queue)
        held = await broker.receive(consumer, 3)
        await consumer.move([towards(held[0], queue=broker.name("missing"))])
        await consumer.close()
        await broker.holds(queue, sent)

    async def test_a_move_makes_room(self, broker: Broker) -> None:
        here, there = await broker.queue("here"), await broker.queue("there")
        sent = await broker.send(here, 2, key="one")
        consumer = await broker.consumer(here, prefetch=1)
        held = await broker.receive(consumer, 1)
        await consumer.move([towards(held[0], queue=there.name)])
        assert ids(await broker.receive(consumer, 1)) == sent[1:]

    async def test_a_move_fans_out_like_any_message_to_an_exchange(self, broker: Broker) -> None:
        origin = await broker.queue("origin")
        one = await broker.queue("one", "order.placed")
        two = await broker.queue("two", "order.*")
        sent = await broker.send(origin)
        consumer = await broker.consumer(origin)
        (held,) = await broker.receive(consumer, 1)
        move = towards(held, queue=None, exchange=broker.name("events"), routing_key="order.placed")
        assert list(await consumer.move([move])) == [ACCEPTED]
        await broker.holds(one, sent)
        await broker.holds(two, sent)

    async def test_moving_what_is_no_longer_ours_changes_nothing(self, broker: Broker) -> None:
        broker.needs("atomic_move")
        here, there = await broker.queue("here"), await broker.queue("there")
        sent = await broker.send(here)
        consumer = await broker.consumer(here)
        (held,) = await broker.receive(consumer, 1)
        await consumer.close()
        try:
            (receipt,) = await consumer.move([towards(held, queue=there.name)])
            assert isinstance(receipt, Rejected)
        except ConnectionLost:
            pass
        await broker.holds(there, [])
        await broker.holds(here, sent)

    async def test_one_message_is_moved_once(self, broker: Broker) -> None:
        broker.needs("atomic_move")
        here, there = await broker.queue("here"), await broker.queue("there")
        sent = await broker.send(here)
        consumer = await broker.consumer(here)
        (held,) = await broker.receive(consumer, 1)
        move = towards(held, queue=there.name)
        receipts = await consumer.move([move, move, towards(held, queue=here.name)])
        assert receipts[0] is ACCEPTED
        assert [type(each) for each in receipts[1:]] == [Rejected, Rejected]
        (receipt,) = await consumer.move([move])
        assert isinstance(receipt, Rejected)
        await broker.holds(there, sent)
        await consumer.close()
        await broker.holds(here, [])
