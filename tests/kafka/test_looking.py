"""Looking at queues: what is remembered between two looks, and is still so."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka.admin import AdminClient

from queuecraft import QueueCraft
from tests.brokers.kafka import client
from tests.kafka.place import topic, until
from tests.kafka.test_closing import threads


async def test_a_second_look_needs_no_new_client(url: str) -> None:
    async with QueueCraft(url) as qc:
        await qc.admin.declare("billing", "order.*")
        await qc.publish("order.placed", {"n": 1})
        await qc.admin.peek("billing")
        there = threads()
        for n in range(2, 5):
            await qc.publish("order.placed", {"n": n})
            seen = await qc.admin.peek("billing")
            assert sorted(each.payload["n"] for each in seen) == list(range(1, n + 1))
        assert threads() <= there  # one may have ended: another test's, or of a second connection


@pytest.mark.parametrize("pattern", ["order.placed", "order.*"])
async def test_a_look_at_a_topic_that_somebody_makes_and_deletes(url: str, pattern: str) -> None:
    admin, name = AdminClient(client(url)), topic(url, "order.placed")
    async with QueueCraft(url) as qc, QueueCraft(url) as other:
        await qc.admin.declare("billing", pattern)
        await qc.send("billing", {})
        assert (await qc.admin.inspect("billing")).ready == 1

        await other.publish("order.placed", {})

        assert (await qc.admin.inspect("billing")).ready == 2
        assert len(await qc.admin.peek("billing")) == 2

        await asyncio.to_thread(lambda: admin.delete_topics([name])[name].result(10))

        await until(lambda: qc.admin.inspect("billing"), lambda info: info.ready == 1, timeout=5)
        assert len(await qc.admin.peek("billing")) == 1


async def test_a_pattern_gives_nothing_that_was_published_before_it(url: str) -> None:
    """Also from a topic that another has made since we connected."""
    async with QueueCraft(url) as qc, QueueCraft(url) as other:
        await qc.admin.declare("audit", "other.event")
        await other.publish("order.placed", {"n": 1})
        await qc.admin.declare("billing", "order.*")
        await other.publish("order.placed", {"n": 2})
        assert [each.payload for each in await qc.admin.peek("billing")] == [{"n": 2}]
