"""What is due while its queue is missing waits for it, on a real RabbitMQ."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest

from queuecraft import Message, QueueCraft, QueueError, Retry
from queuecraft.admin import UnknownQueue
from queuecraft.drivers.base import Outgoing, Queue, Receipt
from queuecraft.drivers.rabbitmq import RabbitDriver, latecomers, login
from queuecraft.drivers.rabbitmq.confirms import Parcel
from queuecraft.drivers.rabbitmq.wire import Wire
from queuecraft.testing import Ledger, failing
from tests.rabbitmq.place import Order, number, opened, order_placed, running, until, until_ready

KEPT = "qc.undelivered.dlq"


async def until_kept(qc: QueueCraft, messages: int) -> None:
    """Return once so many messages have found nobody."""

    async def kept() -> int | None:
        try:
            return (await qc.admin.inspect(KEPT)).ready
        except UnknownQueue:  # made with the first delay
            return None

    await until(kept, lambda ready: ready == messages)


async def until_warned(caplog: pytest.LogCaptureFixture, text: str) -> None:
    """Return once the log says this."""

    async def said() -> str:
        return caplog.text

    await until(said, lambda log: text in log)


async def counted(driver: RabbitDriver, queue: str, messages: int) -> None:
    """Return once so many messages are ready in a queue."""
    await until(lambda: driver.count(queue), lambda count: count == messages)


async def keep(driver: RabbitDriver, queue: str, *bodies: bytes) -> None:
    """Let messages be due for a queue that is missing."""
    await driver.send(
        [
            Outgoing(body, f"late-{n}", queue=queue, due_at=time.time() + 0.1)
            for n, body in enumerate(bodies)
        ]
    )
    await counted(driver, KEPT, len(bodies))


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


async def test_one_who_fails_while_bringing_them_home_loses_none_and_can_declare(
    rabbitmq_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Ledger()
    async with QueueCraft(rabbitmq_url) as qc:
        worker = qc.worker("numbers").on(number, seen.recording("numbers"))
        async with running(worker):
            ids = await qc.publish_many(number, range(5), delay=0.3)
        await qc.admin.delete("numbers")
        await until_kept(qc, 5)
        with failing("latecomers.after_send", QueueError("gone")):
            await qc.admin.declare("numbers", number.name)
            await until_warned(caplog, "was not sent on")
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


async def test_they_arrive_however_long_somebody_else_has_kept_them(
    rabbitmq_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latecomers, "LATER", 0.1, raising=False)
    async with opened(rabbitmq_url) as other, opened(rabbitmq_url) as driver:
        await keep(other, "numbers", b"1", b"2")
        consumer = await other.subscribe(Queue(KEPT, exclusive=True), prefetch=1)
        await driver.declare(Queue("numbers"))
        await driver.declare(Queue("others"))
        await until_warned(caplog, f"somebody else consumes from {KEPT}")
        await consumer.close()
        await counted(driver, "numbers", 2)
        await counted(driver, KEPT, 0)
    assert len(caplog.records) == 1


async def test_one_who_closes_leaves_no_errand_behind_and_one_who_comes_back_looks_again(
    rabbitmq_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(rabbitmq_url) as other:
        await keep(other, "numbers", b"1")
        consumer = await other.subscribe(Queue(KEPT, exclusive=True), prefetch=1)
        before = asyncio.all_tasks()
        async with opened(rabbitmq_url) as driver:
            await driver.declare(Queue("numbers"))
            await driver.close()
            assert asyncio.all_tasks() <= before
            await consumer.close()
            await driver.open()
            await driver.declare(Queue("numbers"))
            await counted(driver, "numbers", 1)
    assert not caplog.records


async def test_one_who_closes_while_sending_them_on_says_nothing_of_it(
    rabbitmq_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latecomers, "FAREWELL", 0.0)
    async with opened(rabbitmq_url) as other:
        await keep(other, "numbers", b"1")
        before = asyncio.all_tasks()
        async with opened(rabbitmq_url) as driver:
            sending = asyncio.Event()

            async def never(parcels: Sequence[Parcel]) -> list[Receipt]:
                sending.set()
                await asyncio.get_running_loop().create_future()
                return []

            monkeypatch.setattr(driver._latecomers, "_send", never)
            await driver.declare(Queue("numbers"))
            await sending.wait()
            await driver.close()
            assert asyncio.all_tasks() <= before
        await counted(other, KEPT, 1)
    assert not caplog.records


async def test_one_who_declares_a_queue_and_goes_has_brought_them_home(rabbitmq_url: str) -> None:
    async with opened(rabbitmq_url) as other:
        await keep(other, "numbers", b"1")
        async with opened(rabbitmq_url) as driver:
            await driver.declare(Queue("numbers"))
        assert await other.count("numbers") == 1


async def test_of_a_backlog_no_more_is_fetched_than_memory_has_room_for(
    rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = b"x" * (1 << 20)
    heard = 0

    class Counted(Wire):
        def data_received(self, data: bytes) -> None:
            nonlocal heard
            heard += len(data)
            super().data_received(data)

    async with opened(rabbitmq_url) as other:
        await keep(other, "numbers", b"1")
        for _ in range(10):
            await other.send([Outgoing(large, f"m-{n}", queue=KEPT) for n in range(10)])
        await counted(other, KEPT, 101)
        monkeypatch.setattr(login, "Wire", Counted)
        async with opened(rabbitmq_url) as driver:
            await driver.declare(Queue("numbers"))
            await counted(driver, "numbers", 1)
            await counted(driver, KEPT, 100)
        assert heard < 60 * len(large)


async def test_one_look_brings_home_what_waits_for_all_queues_declared_before(
    rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latecomers, "LOOKED_AT", 1)
    async with opened(rabbitmq_url) as other, opened(rabbitmq_url) as driver:
        await keep(other, "second", *[b"2"] * 40)
        await other.send([Outgoing(b"1", "late", queue="first", due_at=time.time() + 0.1)])
        await counted(other, KEPT, 41)
        await driver.declare(Queue("first"))
        await driver.declare(Queue("second"))
        await counted(driver, "second", 40)
        await counted(driver, "first", 1)
