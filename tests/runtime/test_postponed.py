"""A message that is not to be handled now comes again later, as if for the first time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from queuecraft import Event, Message, QueueCraft
from queuecraft.facts import MessagePostponed
from queuecraft.model.outcome import Postponed
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
