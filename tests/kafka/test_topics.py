"""How long topics keep, and those that somebody deletes and makes again under a worker."""

from __future__ import annotations

import asyncio

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from queuecraft import Queue, QueueCraft
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


async def test_dead_letters_are_kept_for_ever_and_a_queue_as_long_as_it_says(url: str) -> None:
    async with QueueCraft(url) as qc:
        await qc.admin.declare(Queue("billing", arguments={"retention.ms": "60000"}))
        await qc.admin.declare(Queue("loose.dlq"))
        await qc.admin.declare(Queue("brief.dlq", arguments={"retention.ms": "70000"}))
        async with running(qc.worker("shipping").on(order_placed, print)):
            pass
    names = ("billing.inbox", "loose.dlq", "brief.dlq", "shipping.dlq", "shipping.inbox")
    admin = AdminClient(client(url))

    def kept(name: str) -> tuple[str, bool]:
        asked = ConfigResource(ResourceType.TOPIC, topic(url, name))
        found = admin.describe_configs([asked])[asked].result(10)["retention.ms"]
        return found.value, found.is_default

    found = {name: await asyncio.to_thread(kept, name) for name in names}
    assert {name: value for name, (value, usual) in found.items() if not usual} == {
        "billing.inbox": "60000",
        "loose.dlq": "-1",
        "brief.dlq": "70000",
        "shipping.dlq": "-1",
    }
