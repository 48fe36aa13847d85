"""What is due while its queue is missing waits for it, on a real RabbitMQ."""

from __future__ import annotations

import asyncio

import pytest

from queuecraft import Message, QueueCraft, QueueError, Retry
from queuecraft.admin import UnknownQueue
from queuecraft.testing import Ledger, failing
from tests.rabbitmq.place import Order, number, order_placed, running, until, until_ready

KEPT = "qc.undelivered.dlq"


async def until_kept(qc: QueueCraft, messages: int) -> None:
    """Return once so many messages have found nobody."""

    async def kept() -> int | None:
        try:
            return (await qc.admin.inspect(KEPT)).ready
        except UnknownQueue:  # made with the first delay
            return None

    await until(kept, lambda ready: ready == messages)


async def test_retries_and_delayed_messages_arrive_though_their_queue_was_missing_when_due(
    rabbitmq_url: str,
) -> None:
    seen = Ledger()
    jobs = list(range(20))

    async def fail_first(n: int, message: Message) -> None:
        if message.attempt == 1 and n in jobs:
            raise ValueError("not yet")
        seen.record("numbers", message)

    async with QueueCraft(rabbitmq_url) as qc:
        worker = qc.worker("numbers", retry=Retry(max_retries=1, initial_delay=0.7), concurrency=20)
        worker.on(number, fail_first)

        async def retried() -> int:
            return qc.get_metrics().messages_retried

        async with running(worker):
            await qc.publish_many(number, jobs)
            await until(retried, lambda count: count == len(jobs))
        await qc.send("numbers", 20, delay=0.5)
        await qc.publish(number, 21, delay=0.5)
        await qc.publish(order_placed, Order("of-others"), delay=0.5)
        await qc.admin.delete("numbers")
        await until_kept(qc, 23)

        async with running(worker):
            await seen.wait_for(numbers=22)
            await until_kept(qc, 1)

        others = qc.worker("others").on(order_placed, seen.recording("others"))
        async with running(others):
            await seen.wait_for(others=1)
            await until_kept(qc, 0)
    assert sorted(seen.payloads("numbers")) == list(range(22))
    assert seen.payloads("others") == [Order("of-others")]
    attempts = dict(zip(seen.payloads("numbers"), seen.attempts("numbers"), strict=True))
    assert attempts == {**dict.fromkeys(jobs, 2), 20: 1, 21: 1}


async def test_one_who_dies_while_bringing_them_home_loses_none(rabbitmq_url: str) -> None:
    seen = Ledger()
    async with QueueCraft(rabbitmq_url) as qc:
        worker = qc.worker("numbers").on(number, seen.recording("numbers"))
        async with running(worker):
            ids = await qc.publish_many(number, range(5), delay=0.3)
        await qc.admin.delete("numbers")
        await until_kept(qc, 5)
        with failing("latecomers.after_send", QueueError("gone")), pytest.raises(QueueError):
            await qc.admin.declare("numbers", number.name)
        await until_kept(qc, 5)
        await until_ready(qc, "numbers", 5)

        async with running(worker):
            await seen.wait_for(numbers=10)
            await until_kept(qc, 0)
    assert {each: seen.ids().count(each) for each in seen.ids()} == dict.fromkeys(map(str, ids), 2)


async def test_several_who_declare_at_once_bring_home_everything(rabbitmq_url: str) -> None:
    seen = Ledger()
    names = ["one", "two", "three"]
    async with QueueCraft(rabbitmq_url) as qc:
        for name in names:
            await qc.publish_many(f"{name}.thing", range(50), delay=0.2, unroutable="drop")
        await until_kept(qc, 150)

    async def start(name: str) -> None:
        async with QueueCraft(rabbitmq_url) as qc:
            worker = qc.worker(name).on(f"{name}.#", seen.recording(name))
            async with running(worker):
                await seen.wait_for(**{name: 50})

    await asyncio.gather(*map(start, names))
    async with QueueCraft(rabbitmq_url) as qc:
        await until_kept(qc, 0)
    assert all(sorted(seen.payloads(name)) == list(range(50)) for name in names)
