"""Looking at queues: what is remembered between two looks, and what of that is believed."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka.admin import AdminClient

from queuecraft import QueueCraft
from queuecraft.drivers.kafka import cluster
from tests.brokers.kafka import client
from tests.kafka.place import topic, until
from tests.kafka.test_closing import threads


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster whose few topics are taken for very many."""
    monkeypatch.setattr(cluster, "MANY", 0)


async def test_a_second_look_needs_no_new_client(url: str) -> None:
    async with QueueCraft(url) as qc:
        await qc.admin.declare("billing", "order.*")
        await qc.publish("order.placed", {"n": 1})
        await qc.admin.peek("billing")
        before = threads()
        for n in range(2, 5):
            await qc.publish("order.placed", {"n": n})
            seen = await qc.admin.peek("billing")
            assert sorted(each.payload["n"] for each in seen) == list(range(1, n + 1))
        assert threads() == before


async def test_a_look_at_a_topic_that_somebody_has_deleted_meanwhile(url: str, many: None) -> None:
    admin, name = AdminClient(client(url)), topic(url, "order.placed")
    async with QueueCraft(url) as qc:
        await qc.admin.declare("billing", "order.*")
        await qc.send("billing", {})
        await qc.publish("order.placed", {})
        assert (await qc.admin.inspect("billing")).ready == 2

        await asyncio.to_thread(lambda: admin.delete_topics([name])[name].result(10))

        await until(lambda: qc.admin.inspect("billing"), lambda info: info.ready == 1, timeout=5)
        assert len(await qc.admin.peek("billing")) == 1


async def test_a_new_topic_is_overlooked_for_a_moment_only(
    url: str, many: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "BELIEVED", 0.2)
    async with QueueCraft(url) as qc, QueueCraft(url) as other:
        await qc.admin.declare("billing", "order.*")
        await qc.admin.inspect("billing")
        await other.publish("order.placed", {})
        await until(lambda: qc.admin.inspect("billing"), lambda info: info.ready == 1)
