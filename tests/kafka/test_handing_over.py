"""What is on its way into somebody's hands when its partition goes to another process."""

from __future__ import annotations

import asyncio
import threading

from confluent_kafka import TopicPartition

from queuecraft import Queue
from queuecraft.drivers.base import ACCEPTED, Outgoing
from queuecraft.drivers.kafka.subscription import KafkaSubscription
from tests.kafka.place import opened
from tests.runtime.support import eventually

billing = Queue[object]("billing")


async def test_a_partition_goes_at_once_though_records_of_it_are_about_to_be_handed_over(
    url: str,
) -> None:
    """They wait for Kafka to know of them, behind the very poll that hears of the revocation."""
    async with opened(url) as driver:
        await driver.declare(billing)
        messages = [Outgoing(b"{}", f"m-{n}", queue="billing") for n in range(4)]
        assert await driver.send(messages) == [ACCEPTED] * 4
        consumer = await driver.subscribe(billing, prefetch=10)
        assert isinstance(consumer, KafkaSubscription)
        member = consumer._member

        def fetched() -> bool:
            if len(consumer._ready) < 4 and consumer._fetching is None:
                consumer._fetch(10, 1.0)
            return consumer._fetching is None

        await eventually(fetched, timeout=10)
        assert member.silent
        go = threading.Event()

        def revoked() -> None:
            go.wait(5)
            ours = [TopicPartition(*spot) for spot in member._places]
            member._on_revoke(member._consumer, ours)

        revoking = asyncio.get_running_loop().run_in_executor(consumer._polling, revoked)
        receiving = asyncio.create_task(consumer.receive(10, 0.0))
        await asyncio.sleep(0)  # it has asked, and waits behind that
        go.set()
        async with asyncio.timeout(0.8):  # less than drain_timeout
            await revoking
        assert member.failed is None
        assert await receiving == []
