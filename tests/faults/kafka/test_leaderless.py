"""A broker that is down for long, and with it some partitions of a topic: the others go on."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from itertools import islice
from zlib import crc32

import pytest
from confluent_kafka.admin import AdminClient

from queuecraft.drivers.base import ACCEPTED, Binding, Exchange, Outgoing
from queuecraft.drivers.kafka.driver import KafkaDriver
from queuecraft.model.errors import QueueError
from tests.brokers.kafka import client
from tests.brokers.kraft import Kraft
from tests.faults.kafka.second import Second, halved, leaders
from tests.kafka.place import bound, event, opened, received, until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(150)]

billing = bound("billing", "order.placed")


@pytest.fixture
def first() -> Iterator[Kraft]:
    with Kraft() as kraft:
        yield kraft


async def published(driver: KafkaDriver, *ids: str) -> None:
    """All of these are accepted, and soon."""
    async with asyncio.timeout(5):
        receipts = await driver.send([event("order.placed", each, key=each) for each in ids])
    assert receipts == [ACCEPTED] * len(ids)


def of_partition(number: int, count: int) -> list[str]:
    """Keys by which librdkafka chooses this one of two partitions."""
    keys = (f"o-{n}" for n in itertools.count())
    return list(islice((each for each in keys if crc32(each.encode()) % 2 == number), count))


async def test_what_a_broker_leads_that_is_down_is_missing_and_nothing_else(first: Kraft) -> None:
    url = f"{first.url}?prefix=shop.&refresh=0.2&session_timeout=6&drain_timeout=1"
    admin, name = AdminClient(client(first.url)), "shop.order.placed"

    async def led() -> list[int]:
        return await asyncio.to_thread(leaders, admin, name)

    async def ready(driver: KafkaDriver) -> int | None:
        (info,) = await driver.inspect(["billing"])
        return info.ready

    async with opened(url) as driver, opened(url) as other:
        await driver.declare(bound("billing"))
        consumer = await driver.subscribe(bound("billing"), prefetch=10)
        await driver.send([Outgoing(b"{}", "m-1", queue="billing")])
        assert await received(consumer, 1) == ["m-1"]
        await consumer.close()  # all that is not of the event has its leader by now
        with Second(first) as second:
            await asyncio.to_thread(halved, admin, name)
            await until(led, lambda by: by == [1, 2])
            await driver.declare(billing)
            there, away = of_partition(0, 20), of_partition(1, 20)
            await published(driver, *there[:10], *away)
            assert await ready(driver) == 30
            second.kill()
            await until(led, lambda by: by == [1, -1])
            await other._cluster.look("test")

            assert await ready(other) is None
            await published(other, *there[10:])
            with pytest.raises(QueueError, match="Leader not available"):
                await other.declare(bound("audit", "order.*"))
            with pytest.raises(QueueError, match="Leader not available"):
                await other.unbind("billing", [Binding(Exchange("events"), "order.placed")])
            async with asyncio.timeout(5):
                await other.declare(billing)
            consumer = await other.subscribe(billing, prefetch=100)
            assert await received(consumer, len(there)) == there

            second.start()
            assert await received(consumer, len(away), timeout=40) == away
            await until(lambda: ready(other), lambda left: left == 0)
