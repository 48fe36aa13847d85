"""How many run at once, how many are held, and who gets what."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from queuecraft import ConfigError, Message
from queuecraft.testing import Ledger
from tests.runtime.consuming import Gate, at_rest, both, number, state, tidy
from tests.runtime.support import eventually, quiet, running


@both
async def test_one_handler_runs_and_one_message_is_held_when_nothing_is_set(inline: bool) -> None:
    gate = Gate()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers").on(number, gate.handle)
        async with running(worker):
            await stage.qc.publish_many(number, range(5))
            await gate.entered(1)
            await quiet()
            info = await state(stage.driver, "numbers")
            assert (info.in_flight, info.ready) == (1, 4)
            gate.open()
            await at_rest(stage.driver, "numbers")
    assert gate.most == 1
    assert gate.passed == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("concurrency", [2, 5])
@both
async def test_as_many_handlers_run_at_once_as_asked_for_and_no_more(
    concurrency: int, inline: bool
) -> None:
    gate = Gate()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=concurrency, prefetch=20)
        worker.on(number, gate.handle)
        async with running(worker):
            await stage.qc.publish_many(number, range(12))
            await gate.entered(concurrency)
            await quiet()
            assert len(gate.inside) == concurrency
            gate.open()
            await at_rest(stage.driver, "numbers")
    assert gate.most == concurrency
    assert sorted(gate.passed) == list(range(12))


@both
async def test_messages_that_come_one_by_one_run_side_by_side_too(inline: bool) -> None:
    gate = Gate()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=4).on(number, gate.handle)
        async with running(worker):
            for n in range(4):
                await stage.qc.publish(number, n)
                await gate.entered(n + 1)
            gate.open()
            await at_rest(stage.driver, "numbers")


@both
async def test_no_more_than_prefetch_is_held_at_any_moment(inline: bool) -> None:
    most = 0
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=2, prefetch=5)

        @worker.on(number)
        async def look(n: int) -> None:
            nonlocal most
            for _ in range(n % 4):
                held = (await state(stage.driver, "numbers")).in_flight or 0
                most = max(most, held, worker.in_flight)
                await asyncio.sleep(0)

        async with running(worker):
            await stage.qc.publish_many(number, range(200))
            await at_rest(stage.driver, "numbers")
    assert most == 5


@both
async def test_a_message_that_comes_while_several_run_finds_a_runner(
    inline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes the last one that was fetched leaves somebody behind to fetch the next."""
    monkeypatch.setattr("queuecraft.runtime.runner.SLICE", 60.0)  # nobody gives up the loop
    gate = Gate()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=4).on(number, gate.handle)
        async with running(worker):
            await quiet()
            await stage.qc.publish_many(number, [0, 1])
            await gate.entered(2)
            await quiet()
            await stage.qc.publish_many(number, [2, 3])
            await gate.entered(4)
            gate.open()
            await at_rest(stage.driver, "numbers")


@both
async def test_one_slow_handler_does_not_keep_the_others_from_new_messages(inline: bool) -> None:
    gate, seen = Gate(), Ledger()
    async with tidy(inline=inline) as stage:
        worker = stage.qc.worker("numbers", concurrency=2, prefetch=3)

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            if n == 0:
                await gate.handle(n, message)
            seen.record("numbers", message)

        async with running(worker):
            await stage.qc.publish_many(number, range(30))
            await seen.wait_for(numbers=29)
            assert gate.inside == [0]
            gate.open()
            await at_rest(stage.driver, "numbers")
    assert seen.payloads() == [*range(1, 30), 0]


@both
async def test_competing_workers_share_a_queue(inline: bool) -> None:
    gate, seen = Gate(), Ledger()
    async with tidy(inline=inline) as stage:
        one = stage.qc.worker("numbers").on(number, gate.handle)
        two = stage.qc.worker("numbers").on(number, seen.recording("two"))
        async with running(one):
            await stage.qc.publish_many(number, range(10))
            await gate.entered(1)
            async with running(two):
                await seen.wait_for(two=9)
                gate.open()
                await at_rest(stage.driver, "numbers")
    assert gate.passed == [0]
    assert seen.payloads("two") == list(range(1, 10))


@both
async def test_a_message_for_competing_workers_is_handled_once(inline: bool) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        workers = [
            stage.qc.worker("numbers", concurrency=2).on(number, seen.recording("numbers"))
            for _ in range(3)
        ]
        async with running(*workers):
            for _ in range(20):
                for id in await stage.qc.publish_many(number, range(5)):
                    seen.published(str(id))
                await asyncio.sleep(0)
            await seen.wait_for(numbers=100)
            await at_rest(stage.driver, "numbers")
    seen.check()


@both
async def test_each_group_gets_every_message(inline: bool) -> None:
    seen = Ledger()
    async with tidy(inline=inline) as stage:
        billing = stage.qc.worker("billing").on(number, seen.recording("billing"))
        audit = stage.qc.worker("audit", concurrency=3).on(number, seen.recording("audit"))
        async with running(billing, audit):
            await stage.qc.publish_many(number, range(10))
            await seen.wait_for(billing=10, audit=10)
            await at_rest(stage.driver, "billing", "audit")
    assert sorted(seen.payloads("billing")) == list(range(10))
    assert sorted(seen.payloads("audit")) == list(range(10))


async def test_a_slow_group_does_not_hold_up_another() -> None:
    gate, seen = Gate(), Ledger()
    async with tidy() as stage:
        slow = stage.qc.worker("slow").on(number, gate.handle)
        fast = stage.qc.worker("fast").on(number, seen.recording("fast"))
        async with running(slow, fast):
            await stage.qc.publish_many(number, range(10))
            await seen.wait_for(fast=10)
            assert gate.passed == []
            gate.open()


@pytest.mark.parametrize("change", [{"concurrency": 0}, {"prefetch": 0}, {"prefetch": 2}])
async def test_a_worker_that_could_never_be_busy_is_refused(change: Any) -> None:
    async with tidy() as stage:
        options: Any = {"concurrency": 3, **change}
        with pytest.raises(ConfigError):
            stage.qc.worker("numbers", **options)


def all_passed(gate: Gate, count: int) -> bool:
    return len(gate.passed) == count


@both
async def test_every_runner_goes_back_to_work_after_an_empty_spell(inline: bool) -> None:
    """A wake-up that got lost would leave a runner asleep for good."""
    async with tidy(inline=inline) as stage:
        gates = [Gate() for _ in range(5)]
        worker = stage.qc.worker("numbers", concurrency=3)

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            await gates[n].handle(n, message)

        async with running(worker):
            for n, gate in enumerate(gates):
                await stage.qc.publish_many(number, [n] * 3)
                await gate.entered(3)
                gate.open()
                await eventually(partial(all_passed, gate, 3))
                await quiet()
            await at_rest(stage.driver, "numbers")
