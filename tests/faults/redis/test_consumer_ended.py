"""A consumer whose queue is gone begins again by itself, and disturbs nobody else."""

from __future__ import annotations

import re
from typing import Any

import pytest

from queuecraft import Queue, QueueCraft, QueueError
from queuecraft.drivers.redis.watch import Watch
from tests.brokers.redis import Redis
from tests.faults.rabbitmq.handlers import Seen, at_work, disconnections, until
from tests.faults.rabbitmq.test_consumer_ended import (
    test_a_queue_deleted_under_its_worker_is_declared_again_and_the_worker_goes_on as deleted,
)
from tests.faults.rabbitmq.test_consumer_ended import (
    test_messages_that_are_being_handled_when_their_queue_is_deleted_end_without_harm as handling,
)
from tests.faults.scene import Broker
from tests.redis.place import Place


async def test_a_queue_deleted_under_its_worker_is_declared_again_and_the_worker_goes_on(
    broker: Broker,
) -> None:
    await deleted(broker.url)


async def test_messages_that_are_being_handled_when_their_queue_is_deleted_end_without_harm(
    broker: Broker,
) -> None:
    await handling(broker.url)


async def test_a_queue_deleted_before_its_consumer_waits_for_changes_is_noticed(
    redis_url: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(redis_url)
    driver = await place.driver(mode)
    operator = await place.driver(mode)
    await driver.declare(Queue("billing"))
    consumer = await driver.subscribe(Queue("billing"), prefetch=5)
    arm = Watch.arm

    async def delete_and_arm(self: Watch, *about: Any) -> int:
        await operator.delete("billing")
        return await arm(self, *about)

    monkeypatch.setattr(Watch, "arm", delete_and_arm)
    with pytest.raises(QueueError, match="the queue was deleted under its consumer"):
        await consumer.receive(1, 1000)  # the test has no such time
    await place.close()


async def test_a_key_that_another_program_has_replaced_is_waited_for(
    broker: Broker, redis: Redis, mode: str
) -> None:
    found = re.search("prefix=([^&]+)", broker.url)
    assert found is not None
    key = f"{{{found[1]}}}:{'queue' if mode == 'list' else 'stream'}:billing"
    seen, other = Seen(), Seen()
    async with QueueCraft(broker.url, reconnect_delay=0.02) as qc:
        lost = disconnections(qc)
        billing = qc.worker("billing").on("order.*", seen)
        audit = qc.worker("audit").on("user.*", other)
        async with at_work(billing, audit):
            await qc.publish("order.placed", 1)
            await seen.has(1)
            await until(lambda: settled(qc))
            redis.call("SET", key, "mine")
            await qc.publish("user.created", 2)
            await other.has(2)

            redis.call("DEL", key)
            await qc.publish("order.placed", 3)
            await seen.has(3)
        assert seen.payloads == [1, 3]
        assert lost == []


async def settled(qc: QueueCraft) -> bool:
    info = await qc.admin.inspect("billing")
    return (info.ready, info.in_flight) == (0, 0)
