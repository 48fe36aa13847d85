"""Topics that somebody deletes and makes again under a worker."""

from __future__ import annotations

import asyncio

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from queuecraft import QueueCraft
from queuecraft.testing import Ledger
from tests.brokers.kafka import client
from tests.kafka.place import Order, order_placed, running, topic, until


async def test_a_topic_that_was_gone_is_given_again_from_its_beginning(url: str) -> None:
    seen = Ledger()
    qc = QueueCraft(f"{url}&partitions=1")
    billing = qc.worker("billing").on(order_placed, seen.recording("billing"))
    admin, name, group = AdminClient(client(url)), topic(url, "order.placed"), topic(url, "billing")

    async def given() -> set[str]:
        told = await asyncio.to_thread(
            lambda: admin.describe_consumer_groups([group])[group].result(10)
        )
        return {
            each.topic for member in told.members for each in member.assignment.topic_partitions
        }

    async def made() -> bool:
        try:
            await asyncio.to_thread(
                lambda: admin.create_topics([NewTopic(name, 1)])[name].result(10)
            )
        except KafkaException:
            return False  # it is still being deleted
        return True

    async with qc, running(billing):
        await qc.publish_many(order_placed, [Order(f"old-{n}") for n in range(5)])
        await seen.wait_for(timeout=20, billing=5)
        await asyncio.to_thread(lambda: admin.delete_topics([name])[name].result(10))
        await until(given, lambda topics: name not in topics)
        await until(made, bool)
        async with QueueCraft(url) as other:
            await other.publish_many(order_placed, [Order(f"new-{n}") for n in range(3)])
        await seen.wait_for(timeout=20, billing=8)
    assert [order.id for order in seen.payloads()[5:]] == ["new-0", "new-1", "new-2"]
