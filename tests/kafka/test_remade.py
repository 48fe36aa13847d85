"""A topic that is deleted and made again while no worker runs: a queue is given all of the new one,
though it was to go on further along in the old one."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from queuecraft.drivers.base import ACCEPTED
from queuecraft.drivers.kafka.driver import KafkaDriver
from tests.brokers.kafka import client
from tests.kafka.place import bound, event, opened, received, topic, until

billing = bound("billing", "order.placed")


async def published(driver: KafkaDriver, name: str, count: int) -> list[str]:
    """The ids of so many that were accepted."""
    ids = [f"{name}-{n}" for n in range(count)]
    receipts = await driver.send([event("order.placed", each) for each in ids])
    assert receipts == [ACCEPTED] * count
    return ids


async def handled(driver: KafkaDriver, count: int) -> list[str]:
    """A worker comes, handles so many, and goes."""
    consumer = await driver.subscribe(billing, prefetch=10)
    ids = await received(consumer, count)
    await consumer.close()
    return ids


async def made_again(url: str) -> None:
    """The topic of the event is another one now."""
    admin, name = AdminClient(client(url)), topic(url, "order.placed")

    async def made() -> bool:
        try:
            await asyncio.to_thread(
                lambda: admin.create_topics([NewTopic(name, 1)])[name].result(10)
            )
        except KafkaException:
            return False  # it is still being deleted
        return True

    await asyncio.to_thread(lambda: admin.delete_topics([name])[name].result(10))
    await until(made, bool)


async def ready(driver: KafkaDriver) -> int | None:
    (info,) = await driver.inspect(["billing"])
    return info.ready


async def test_where_it_was_bound_says_nothing_of_a_topic_that_was_made_again(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(f"{url}&partitions=1") as driver:
        await published(driver, "before", 5)
        await driver.declare(billing)
        await made_again(url)
        new = await published(driver, "new", 3)
        assert await ready(driver) == 3
        assert await handled(driver, 3) == new
        assert "ends at 3, before 5, where this queue was to go on" in caplog.text
        # Who comes next goes on there, and not where the queue was bound in the old one.
        newer = await published(driver, "newer", 6)
        assert await ready(driver) == 6
        assert await handled(driver, 6) == newer
        assert caplog.text.count("this queue was to go on") == 1


async def test_who_declares_a_queue_again_is_given_all_of_a_topic_that_was_made_again(
    url: str,
) -> None:
    async with opened(f"{url}&partitions=1") as driver:
        await published(driver, "before", 5)
        await driver.declare(billing)
        await made_again(url)
        await driver.declare(billing)
        new = await published(driver, "new", 6)
        assert await ready(driver) == 6
        assert await handled(driver, 6) == new


async def test_a_group_that_is_further_than_its_topic_goes_begins_anew(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(f"{url}&partitions=1") as driver:
        await driver.declare(billing)
        first = await published(driver, "first", 2)
        place = TopicPartition(topic(url, "order.placed"), 0, 100)
        await driver._cluster.move(topic(url, "billing"), [place], "test")
        second = await published(driver, "second", 2)
        assert await handled(driver, 4) == [*first, *second]
        assert "ends at 4, before 100" in caplog.text
        assert await ready(driver) == 0
        third = await published(driver, "third", 1)
        assert await handled(driver, 1) == third


async def test_a_group_that_is_further_than_an_old_topic_goes_on_at_its_end(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(f"{url}&partitions=1") as driver:
        await driver.declare(billing)
        name = topic(url, "order.placed")
        first = await published(driver, "first", 5)
        assert await handled(driver, 5) == first
        await driver._cluster.cut([TopicPartition(name, 0, 2)])
        await driver._cluster.move(topic(url, "billing"), [TopicPartition(name, 0, 100)], "test")
        consumer = await driver.subscribe(billing, prefetch=10)
        await until(lambda: asyncio.sleep(0, caplog.text), lambda text: "ends at 5" in text)
        assert "it has lost its end" in caplog.text
        second = await published(driver, "second", 2)
        assert await received(consumer, 2) == second
        await consumer.close()
        assert await ready(driver) == 0
