"""A consumer that cannot go on: whoever waits for it is told at once."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from queuecraft import ConnectionLost, Queue, QueueCraft, QueueError
from queuecraft.drivers.base import ACCEPTED, Outgoing
from queuecraft.drivers.kafka import member
from queuecraft.runtime.facts import Disconnected
from queuecraft.testing import Ledger
from tests.kafka.place import Order, opened, order_placed, received, running, until

billing = Queue[object]("billing")


class Forgetful:
    """A consumer that cannot say once how far its group is."""

    failures: ClassVar[int] = 0

    def __init__(self, settings: dict[str, Any]) -> None:
        self._real: Any = Consumer(settings)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def subscribe(self, topics: list[str], **told: Any) -> None:
        assign = told.pop("on_assign")
        self._real.subscribe(topics, on_assign=lambda _, given: assign(self, given), **told)

    def committed(self, partitions: list[TopicPartition], timeout: float) -> Any:
        if Forgetful.failures > 0:
            Forgetful.failures -= 1
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return self._real.committed(partitions, timeout=timeout)


async def test_who_is_given_partitions_and_cannot_learn_where_to_go_on_says_so_at_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(url) as driver:
        await driver.declare(billing)
        monkeypatch.setattr(member, "Consumer", Forgetful)
        consumer = await driver.subscribe(billing, prefetch=10)
        monkeypatch.setattr(Forgetful, "failures", 1)
        with pytest.raises(ConnectionLost):
            async with asyncio.timeout(10):  # much less than it was to wait for
                await consumer.receive(1, 30)
        await consumer.close()
        assert await driver.send([Outgoing(b"{}", "m-1", queue="billing")]) == [ACCEPTED]
        again = await driver.subscribe(billing, prefetch=10)
        assert await received(again, 1) == ["m-1"]


async def test_who_waits_for_messages_when_the_last_broker_goes_is_told_at_once(url: str) -> None:
    async with opened(url) as driver:
        await driver.declare(billing)
        consumer = await driver.subscribe(billing, prefetch=10)
        assert await consumer.receive(1, 0.1) == []
        waiting = asyncio.create_task(consumer.receive(1, 30))
        await asyncio.sleep(0)  # it has asked
        driver.lose(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        with pytest.raises(ConnectionLost):
            async with asyncio.timeout(2):
                await waiting


@pytest.mark.parametrize("by", ["itself", "another"])
async def test_a_queue_deleted_under_its_worker_is_made_again(url: str, by: str) -> None:
    seen, lost = Ledger(), list[Disconnected]()
    qc, another = QueueCraft(url), QueueCraft(url)
    qc.observe(Disconnected, lost.append)
    billing = qc.worker("billing").on(order_placed, seen.recording("billing"))
    audit = qc.worker("audit").on(order_placed, seen.recording("audit"))
    async with qc, another, running(billing, audit):
        await qc.publish(order_placed, Order("o-1"))
        await qc.send("billing", Order("o-2"))
        await seen.wait_for(timeout=20, billing=2, audit=1)
        await (qc if by == "itself" else another).admin.delete("billing")
        await until(another.admin.queues, lambda queues: "billing" in {q.name for q in queues})
        await qc.publish(order_placed, Order("o-3"))
        await qc.send("billing", Order("o-4"))
        await seen.wait_for(timeout=20, billing=4, audit=2)
    assert lost == []
    assert [each.id for each in seen.payloads("billing")] == ["o-1", "o-2", "o-3", "o-4"]


async def test_who_consumes_a_queue_that_is_deleted_is_told_at_once(url: str) -> None:
    async with opened(url) as driver:
        await driver.declare(billing)
        consumer = await driver.subscribe(billing, prefetch=10)
        assert await consumer.receive(1, 0.1) == []
        waiting = asyncio.create_task(consumer.receive(1, 30))
        await asyncio.sleep(0)  # it has asked
        await driver.delete("billing")
        with pytest.raises(QueueError, match="the queue was deleted under its consumer") as told:
            async with asyncio.timeout(2):
                await waiting
        assert not isinstance(told.value, ConnectionLost)
