"""Replies on Kafka: all in one topic, of which everybody takes its own."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from confluent_kafka import Message

from queuecraft import QueueCraft, QueueError
from queuecraft.drivers.base import ACCEPTED, Delivery, Outgoing
from queuecraft.drivers.kafka import drivers, replies
from queuecraft.drivers.kafka.envelope import message_of
from queuecraft.drivers.target import Target
from tests.kafka.place import Order, order_placed, running, topic


def reply(address: str, id: str) -> Outgoing:
    return Outgoing(b"{}", id, key=address, queue=address)


def ids(got: Sequence[Delivery]) -> list[str]:
    return [each.sent.id for each in got]


async def test_who_comes_back_gets_what_came_meanwhile_and_nobody_what_came_before(
    url: str,
) -> None:
    caller, worker = drivers(Target(url))[0], drivers(Target(url))[0]
    await caller.open()
    await worker.open()
    try:
        assert await worker.send([reply("qc.reply.a", "early")]) == [ACCEPTED]
        listening = await caller.listen("qc.reply.a", prefetch=10)
        await worker.send([reply("qc.reply.b", "r-0"), reply("qc.reply.a", "r-1")])
        assert ids(await listening.receive(10, 20)) == ["r-1"]
        await caller.close()
        await worker.send([reply("qc.reply.a", "r-2")])
        await caller.open()
        listening = await caller.listen("qc.reply.a", prefetch=10)
        assert ids(await listening.receive(10, 20)) == ["r-2"]
    finally:
        await caller.close()
        await worker.close()


async def test_who_fails_to_read_replies_is_told_and_gets_them_later(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [RuntimeError("out of order")]

    def failing(record: Message) -> Outgoing:
        if failures:
            raise failures.pop()
        return message_of(record)

    monkeypatch.setattr(replies, "message_of", failing)
    caller = drivers(Target(url))[0]
    await caller.open()
    try:
        listening = await caller.listen("qc.reply.a", prefetch=10)
        assert await caller.send([reply("qc.reply.a", "r-1")]) == [ACCEPTED]
        with pytest.raises(QueueError, match="out of order"):
            await listening.receive(10, 20)
        await listening.close()
        listening = await caller.listen("qc.reply.a", prefetch=10)
        assert ids(await listening.receive(10, 20)) == ["r-1"]
    finally:
        await caller.close()


@pytest.mark.parametrize("pattern", ["#", "queuecraft.*"])
async def test_no_queue_is_given_replies_by_a_pattern(url: str, pattern: str) -> None:
    async with QueueCraft(url) as qc:
        audit, billing = qc.worker("audit"), qc.worker("billing")
        seen: list[object] = []
        audit.on(pattern, seen.append)

        @billing.on(order_placed)
        async def total(order: Order) -> float:
            return order.total

        async with running(audit, billing):
            assert await qc.request(order_placed, Order("o-1", 4.5), float, timeout=20) == 4.5
        topics = await qc.admin.topology()
        assert topic(url, "queuecraft.replies") not in topics.queues
    assert all(isinstance(each, dict) and "id" in each for each in seen)
