"""Partitions that have no leader for a while: their topics are there all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from queuecraft.drivers.base import ACCEPTED
from queuecraft.drivers.kafka import member
from queuecraft.drivers.kafka.cluster import Cluster
from queuecraft.drivers.kafka.driver import KafkaDriver
from tests.kafka.place import bound, event, opened, received, topic
from tests.kafka.test_ending import Forgetful

if TYPE_CHECKING:
    from confluent_kafka.admin._metadata import ClusterMetadata

billing = bound("billing", "order.placed")


def lead(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Partition 1 of this topic has no leader, as far as the brokers tell."""
    listed = Cluster._listed

    def told(self: Cluster, within: float) -> ClusterMetadata:
        metadata = listed(self, within)
        metadata.topics[name].partitions[1].leader = -1
        metadata.topics[name].partitions[1].error = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
        return metadata

    monkeypatch.setattr(Cluster, "_listed", told)


async def published(driver: KafkaDriver, *ids: str) -> None:
    """All of these are accepted."""
    receipts = await driver.send([event("order.placed", each) for each in ids])
    assert receipts == [ACCEPTED] * len(ids)


async def test_who_is_bound_meanwhile_is_given_nothing_that_was_published_before(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    patterned = bound("billing", "order.*")
    async with opened(url) as driver:
        await published(driver, *(f"before-{n}" for n in range(5)))
        with monkeypatch.context() as patch:
            lead(patch, topic(url, "order.placed"))
            await driver.declare(patterned)
        await driver._cluster.look("test")
        (info,) = await driver.inspect(["billing"])
        assert info.ready == 0
        await published(driver, "after")
        consumer = await driver.subscribe(patterned, prefetch=10)
        assert await received(consumer, 1) == ["after"]
        assert await consumer.receive(10, 0.3) == []


async def test_who_consumes_the_topic_goes_on_with_its_other_partitions(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(url) as driver:
        await driver.declare(billing)
        consumer = await driver.subscribe(billing, prefetch=10)
        assert topic(url, "order.placed") in consumer.topics
        lead(monkeypatch, topic(url, "order.placed"))
        await driver._cluster.look("test")
        await driver._follow()
        assert topic(url, "order.placed") in consumer.topics


class Ignorant(Forgetful):
    """A consumer that finds nobody who could tell where a partition ends."""

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float) -> Any:
        raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))


async def test_partitions_of_somebody_who_died_with_them_are_had_though_one_has_no_leader(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(f"{url}&partitions=2") as driver:
        await driver.declare(billing)
        name = topic(url, "order.placed")
        dead = [TopicPartition(name, number, 0, metadata="qc1:;h10") for number in range(2)]
        await driver._cluster.move(topic(url, "billing"), dead, "test")
        await published(driver, "m-1")
        monkeypatch.setattr(member, "Consumer", Ignorant)
        consumer = await driver.subscribe(billing, prefetch=10)
        assert await received(consumer, 1) == ["m-1"]
