"""A message that is not to be handled now comes again later, as if for the first time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from queuecraft import Event, Message, QueueCraft, Worker
from queuecraft.drivers.base import Delivery, Outgoing, Queue
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.drivers.local.subscription import MemorySubscription
from queuecraft.facts import MessagePostponed
from queuecraft.model.outcome import Postponed
from queuecraft.runtime import consumer, lanes
from queuecraft.runtime.lanes import Lanes
from queuecraft.testing import FakeClock

number = Event("number", int)


@asynccontextmanager
async def app(**options: Any) -> AsyncGenerator[tuple[QueueCraft, FakeClock]]:
    clock = FakeClock()
    async with QueueCraft(clock=clock, **options) as qc:
        yield qc, clock


async def test_it_comes_again_when_it_is_due_and_no_failure_is_counted() -> None:
    seen: list[tuple[int, int]] = []
    told: list[MessagePostponed] = []
    async with app() as (qc, clock):
        qc.observe(MessagePostponed, told.append)
        worker = qc.worker("numbers")

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            seen.append((n, message.attempt))
            if len(seen) == 1:
                raise Postponed(3, "the bank is closed")

        await worker.start()
        await qc.publish(number, 1)
        await clock.settle()
        assert seen == [(1, 1)]
        await clock.advance(2.9)
        assert seen == [(1, 1)]
        await clock.advance(0.2)
        assert seen == [(1, 1), (1, 1)]
        metrics = qc.get_metrics()
        assert (metrics.messages_postponed, metrics.messages_failed) == (1, 0)
        assert metrics.messages_succeeded == 1
        assert (await qc.admin.inspect("numbers")).ready == 0
    assert [(each.delay, each.reason) for each in told] == [(3, "the bank is closed")]


async def test_no_runner_waits_for_it() -> None:
    seen: list[int] = []
    async with app() as (qc, clock):
        worker = qc.worker("numbers", concurrency=1, prefetch=10)

        @worker.on(number)
        async def handle(n: int) -> None:
            if n == 0 and 0 not in seen:
                seen.append(0)
                raise Postponed(1)
            seen.append(n)

        await worker.start()
        await qc.publish_many(number, range(4))
        await clock.settle()
        assert seen == [0, 1, 2, 3]
        await clock.advance(1)
        assert seen == [0, 1, 2, 3, 0]


async def test_for_long_it_waits_in_the_queue_and_not_with_the_worker() -> None:
    seen: list[int] = []
    async with app() as (qc, clock):
        worker = qc.worker("numbers", concurrency=1)

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            seen.append(message.attempt)
            if len(seen) == 1:
                raise Postponed(600)

        await worker.start()
        await qc.publish(number, 1)
        await clock.settle()
        info = await qc.admin.inspect("numbers")
        assert (info.in_flight, info.delayed) == (0, 1)
        await clock.advance(601)
        assert seen == [1, 1]
        assert qc.get_metrics().messages_retried == 0


async def test_one_that_waits_here_again_and_again_is_not_held_for_good() -> None:
    seen: list[int] = []
    async with app() as (qc, clock):
        worker = qc.worker("numbers", concurrency=1)

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            seen.append(message.attempt)
            raise Postponed(5)

        await worker.start()
        await qc.publish(number, 1)
        await clock.advance(consumer.HELD)
        assert (await qc.admin.inspect("numbers")).in_flight == 1
        await clock.advance(6)
        assert (await qc.admin.inspect("numbers")).delayed == 1
        await clock.advance(5)
        assert (await qc.admin.inspect("numbers")).in_flight == 1
        assert set(seen) == {1}


async def test_order_by_key_is_kept() -> None:
    seen: list[int] = []
    async with app() as (qc, clock):
        worker = qc.worker("numbers", concurrency=4, prefetch=10, ordering="key")

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            seen.append(n)
            if seen == [0]:
                raise Postponed(30)
            assert message.attempt == 1

        await worker.start()
        for n in range(3):
            await qc.publish(number, n, key="k")
        await qc.publish(number, 9, key="another")
        await clock.settle()
        assert seen == [0, 9]
        await clock.advance(30)
        assert seen == [0, 9, 0, 1, 2]


@pytest.mark.parametrize("ordering", ["none", "key"])
async def test_a_worker_that_stops_gives_it_back(ordering: Any) -> None:
    async with app() as (qc, clock):
        worker = qc.worker("numbers", ordering=ordering)

        @worker.on(number)
        async def handle(n: int) -> None:
            raise Postponed(4)

        await worker.start()
        await qc.publish(number, 1, key="k")
        await clock.settle()
        await worker.stop()
        info = await qc.admin.inspect("numbers")
        assert (info.ready, info.in_flight) == (1, 0)


async def test_a_worker_that_is_paused_gives_it_back() -> None:
    async with app() as (qc, clock):
        worker = qc.worker("numbers")
        seen: list[int] = []

        @worker.on(number)
        async def handle(n: int) -> None:
            seen.append(n)
            if len(seen) == 1:
                raise Postponed(4)

        await worker.start()
        await qc.publish(number, 1)
        await clock.settle()
        worker.pause()
        await clock.settle()
        assert (await qc.admin.inspect("numbers")).ready == 1
        await clock.advance(10)
        assert seen == [1]
        worker.resume()
        await clock.settle()
        assert seen == [1, 1]


async def test_after_its_message_was_settled_by_hand_it_says_nothing_more() -> None:
    async with app() as (qc, clock):
        worker = qc.worker("numbers")

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            await message.ack()
            raise Postponed(1)

        await worker.start()
        await qc.publish(number, 1)
        await clock.advance(5)
        assert qc.get_metrics().messages_postponed == 0
        await asyncio.sleep(0)


async def crashed_with(driver: MemoryDriver, worker: Worker, times: int = 3) -> None:
    """Count redeliveries onto all that is ready, so that each is handled alone."""
    for _ in range(times):
        subscription = await driver.subscribe(Queue(worker.queue_name), prefetch=100)
        await subscription.receive(100, 0)
        await subscription.close()


async def test_messages_that_are_handled_alone_do_not_bring_each_other_back_early() -> None:
    seen: list[float] = []
    clock = FakeClock()
    driver = MemoryDriver(clock)
    async with QueueCraft(drivers=[driver], clock=clock) as qc:
        worker = qc.worker("numbers", concurrency=2, prefetch=10)

        @worker.on(number)
        async def handle(n: int) -> None:
            seen.append(clock.monotonic())
            raise Postponed(3)

        await worker.declare()
        await qc.publish_many(number, range(2))
        await crashed_with(driver, worker)
        await worker.start()
        await clock.advance(7)
        assert seen == [0, 0, 3, 3, 6, 6]


@pytest.mark.parametrize("stops", [False, True])
async def test_what_is_due_waits_for_one_that_is_handled_alone(stops: bool) -> None:
    log: list[str] = []
    clock = FakeClock()
    driver = MemoryDriver(clock)
    async with QueueCraft(drivers=[driver], clock=clock) as qc:
        worker = qc.worker("numbers", concurrency=3, prefetch=10)

        @worker.on(number)
        async def handle(n: int) -> None:
            log.append(f"begin {n}")
            await clock.sleep(10 if n == 0 else 1)
            log.append(f"end {n}")
            if n == 1 and log.count("begin 1") == 1:
                raise Postponed(2)

        await worker.declare()
        await qc.publish(number, 0)
        await crashed_with(driver, worker)
        elsewhere = await driver.subscribe(Queue("numbers"), prefetch=1)
        held = await elsewhere.receive(1, 0)
        await worker.start()
        await qc.publish(number, 1)
        await clock.settle()
        await elsewhere.release(held)
        await elsewhere.close()
        await clock.advance(5)
        if stops:
            stopping = asyncio.create_task(worker.stop())
            await clock.advance(10)
            await stopping
            await worker.start()
        await clock.advance(20)
        assert log == ["begin 1", "end 1", "begin 0", "end 0", "begin 1", "end 1"]
        assert worker.in_flight == 0


async def test_a_worker_that_is_resumed_at_once_keeps_the_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[int] = []
    over, back = asyncio.Event(), asyncio.Event()
    release = MemorySubscription.release

    async def slowly(self: MemorySubscription, deliveries: Any) -> None:
        await back.wait()
        await release(self, deliveries)

    async with app() as (qc, clock):
        worker = qc.worker("numbers", concurrency=2, prefetch=10, ordering="key")

        @worker.on(number)
        async def handle(n: int) -> None:
            seen.append(n)
            if len(seen) == 1:
                await over.wait()
                raise Postponed(1)

        await worker.start()
        for n in range(3):
            await qc.publish(number, n, key="k")
        await clock.settle()
        worker.pause()
        await clock.settle()
        monkeypatch.setattr(MemorySubscription, "release", slowly)
        over.set()
        await clock.settle()
        worker.resume()
        await clock.settle()
        back.set()
        await clock.advance(5)
        assert seen == [0, 0, 1, 2]


def test_those_that_never_come_back_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "REMEMBERED", 1)
    kept = Lanes()
    one, two = (Delivery(Outgoing(b"", id), "numbers") for id in ("m-1", "m-2"))
    kept.postponed(one, 5.0)
    kept.postponed(two, 6.0)
    assert (kept.due(one), kept.due(two)) == (0.0, 6.0)
