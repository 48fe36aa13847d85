"""A redrive that sends a few ahead, and goes on only if they do not die again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from queuecraft import ConfigError, ConnectionLost, Filter, Message, NoRetry, Redrive, Retry
from queuecraft.drivers.base import Delivery
from queuecraft.runtime.canary import Traces
from queuecraft.testing import Ledger
from tests.runtime.support import (
    Order,
    Stage,
    dead_letter,
    declared,
    ids,
    order_placed,
    running,
    staged,
    with_dead_letters,
)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with staged() as stage:
        yield stage


async def ten_dead(stage: Stage, *, handler: Any = None, retry: Any = None) -> Any:
    worker = stage.qc.worker("billing", retry=retry or NoRetry())
    worker.on(order_placed, handler or Ledger().recording("billing"))
    await stage.driver.declare(worker.definition)
    await stage.driver.send([dead_letter(f"m-{number}") for number in range(10)])
    return worker


def always(error: Exception) -> Any:
    return Ledger().failing("billing", times=None, error=error)


def redriving(stage: Stage, **options: Any) -> asyncio.Task[Redrive]:
    return asyncio.create_task(stage.qc.dead_letters.redrive("billing", **options))


async def test_the_rest_follows_as_soon_as_the_canary_is_handled(stage: Stage) -> None:
    worker = await ten_dead(stage)
    async with running(worker):
        task = redriving(stage, canary=3)
        await stage.clock.advance(1)
        result = await task
        await stage.clock.settle()
        assert worker.counters.succeeded == 10
    assert result == Redrive(total=10, seen=10, moved=10)


async def test_the_rest_waits_until_the_canary_is_handled(stage: Stage) -> None:
    worker = await ten_dead(stage)
    task = redriving(stage, canary=3)
    await stage.clock.advance(20)
    assert await ids(stage.driver, "billing") == ["m-0", "m-1", "m-2"]
    assert len(await ids(stage.driver, "billing.dlq")) == 7
    async with running(worker):
        await stage.clock.advance(1)
        assert (await task).moved == 10


async def test_it_stops_when_one_of_the_canary_dies_again(stage: Stage) -> None:
    worker = await ten_dead(stage, handler=always(ValueError("no money")))
    async with running(worker):
        task = redriving(stage, canary=3)
        await stage.clock.advance(1)
        result = await task
    assert (result.moved, result.done, result.waiting) == (3, False, False)
    assert result.stopped is not None
    assert "3 of the 3 sent ahead died again: ValueError: no money" in result.stopped
    assert await ids(stage.driver, "billing.dlq") == [
        f"m-{n}" for n in (3, 4, 5, 6, 7, 8, 9, 0, 1, 2)
    ]


async def test_it_stops_when_one_dies_after_its_retries(stage: Stage) -> None:
    worker = await ten_dead(
        stage, handler=always(ValueError("no")), retry=Retry(max_retries=2, initial_delay=5)
    )
    async with running(worker):
        task = redriving(stage, canary=1)
        await stage.clock.advance(14)
        assert not task.done()
        await stage.clock.advance(5)
        assert "the one sent ahead died again" in str((await task).stopped)


@pytest.mark.parametrize("patience", [5.0, 60.0])
async def test_it_stops_when_nobody_handles_the_canary_in_time(
    stage: Stage, patience: float
) -> None:
    await ten_dead(stage)
    task = redriving(stage, canary=2, patience=patience)
    await stage.clock.advance(patience - 0.1)
    assert not task.done()
    await stage.clock.advance(0.2)
    stopped = (await task).stopped
    assert stopped == (
        f"after {patience:g} s it is not known what became of the 2 sent ahead: 2 still waiting in "
        "'billing', which nobody consumes"
    )


async def test_it_stops_when_the_canary_is_still_retried(stage: Stage) -> None:
    worker = await ten_dead(
        stage, handler=always(ValueError("no")), retry=Retry(max_retries=9, initial_delay=600)
    )
    async with running(worker):
        task = redriving(stage, canary=1)
        await stage.clock.advance(31)
        assert "perhaps still under way in 'billing'" in str((await task).stopped)
    assert len(await ids(stage.driver, "billing.dlq")) == 9


async def test_a_death_of_another_message_stops_nothing(stage: Stage) -> None:
    worker = await ten_dead(stage)
    task = redriving(stage, canary=2)
    await stage.clock.settle()
    await stage.driver.send([dead_letter("another")])
    async with running(worker):
        await stage.clock.advance(1)
        result = await task
    assert result.stopped is None
    assert await ids(stage.driver, "billing.dlq") == ["another"]  # it came meanwhile


async def test_it_stops_when_the_queue_of_the_canary_is_deleted(stage: Stage) -> None:
    await ten_dead(stage)
    task = redriving(stage, canary=2)
    await stage.clock.settle()
    await stage.qc.admin.delete("billing")
    await stage.clock.advance(1)
    result = await task
    assert result.stopped == "the queue of what was sent ahead exists no more: 'billing'"
    assert (result.moved, result.refused) == (2, 0)
    assert len(await ids(stage.driver, "billing.dlq")) == 8


async def test_a_death_is_seen_though_somebody_takes_another_out(stage: Stage) -> None:
    worker = await ten_dead(stage, handler=always(ValueError("no money")))
    task = redriving(stage, canary=1)
    await stage.clock.settle()
    await stage.qc.dead_letters.delete("billing", where=Filter(ids=frozenset({"m-9"})))
    async with running(worker):
        await stage.clock.settle()
        await stage.clock.advance(1)
        result = await task
    assert (result.moved, result.stopped) == (
        1,
        "the one sent ahead died again: ValueError: no money",
    )


async def test_a_copy_of_the_canary_that_died_before_stops_nothing(stage: Stage) -> None:
    worker = await ten_dead(stage)
    await stage.driver.send([dead_letter("m-0")])
    async with running(worker):
        task = redriving(stage, canary=1)
        await stage.clock.advance(1)
        assert (await task).moved == 11


async def test_a_busy_queue_passes_when_nothing_died_in_time(stage: Stage) -> None:
    gate = asyncio.Event()
    worker = await ten_dead(stage)
    slow = stage.qc.worker("slow", retry=NoRetry())

    @slow.on(order_placed)
    async def wait(order: Order) -> None:
        await gate.wait()

    letters = [dead_letter(f"s-{n}", queue="slow", to="slow.dlq") for n in range(3)]
    await stage.driver.declare(slow.definition)
    await stage.driver.send(letters)
    del worker
    second = stage.qc.worker("slow", retry=NoRetry())
    second.on(order_placed, Ledger().recording("slow"))
    async with running(slow):
        await stage.qc.publish(order_placed, Order("busy"))
        await stage.clock.settle()  # in flight, before and after
        async with running(second):
            task = asyncio.create_task(stage.qc.dead_letters.redrive("slow", canary=1))
            await stage.clock.advance(29)
            assert not task.done()  # it cannot be told what is in flight
            await stage.clock.advance(1.5)
            assert (await task).stopped is None
            gate.set()


async def test_a_filter_and_a_limit_hold_for_the_canary_too(stage: Stage) -> None:
    worker = await with_dead_letters(
        stage.qc,
        stage.driver,
        *(dead_letter(f"m-{n}", error="bank" if n % 2 else "code") for n in range(12)),
    )
    async with running(worker):
        task = redriving(stage, canary=2, limit=4, where=Filter(error="bank"))
        await stage.clock.advance(1)
        result = await task
    assert (result.moved, result.kept, result.stopped) == (4, 4, None)
    assert await ids(stage.driver, "billing.dlq") == [
        *(f"m-{n}" for n in (0, 2, 4, 6, 8, 9, 10, 11)),
    ]


async def test_a_canary_may_be_far_down_the_queue(stage: Stage) -> None:
    worker = await with_dead_letters(
        stage.qc,
        stage.driver,
        *(dead_letter(f"m-{n}", error="code") for n in range(2_500)),
        dead_letter("x-1", error="bank"),
        dead_letter("x-2", error="bank"),
    )
    async with running(worker):
        task = redriving(stage, canary=1, where=Filter(error="bank"))
        await stage.clock.advance(1)
        result = await task
    assert result == Redrive(total=2_502, seen=2_502, moved=2, kept=2_500)
    assert await ids(stage.driver, "billing.dlq") == [f"m-{n}" for n in range(2_500)]


async def test_nothing_chosen_is_not_waited_for(stage: Stage) -> None:
    await ten_dead(stage)
    result = await stage.qc.dead_letters.redrive("billing", canary=3, where=Filter(error="x"))
    assert result == Redrive(total=10, seen=10, kept=10)


async def test_a_dry_run_needs_no_canary(stage: Stage) -> None:
    await ten_dead(stage)
    result = await stage.qc.dead_letters.redrive("billing", canary=3, dry_run=True)
    assert (result.moved, result.waiting) == (10, False)


async def test_progress_tells_that_it_waits_for_the_canary(stage: Stage) -> None:
    worker = await ten_dead(stage)
    told: list[Redrive] = []
    async with running(worker):
        task = redriving(stage, canary=3, on_progress=told.append)
        await stage.clock.advance(1)
        await task
    assert [(each.moved, each.waiting) for each in told] == [(3, True), (3, False), (10, False)]
    seen = [each.seen for each in told]
    assert seen == sorted(seen)


async def test_one_that_waits_for_its_canary_can_be_cancelled(stage: Stage) -> None:
    await ten_dead(stage)
    task = redriving(stage, canary=2)
    await stage.clock.advance(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await ids(stage.driver, "billing") == ["m-0", "m-1"]
    assert await ids(stage.driver, "billing.dlq") == [f"m-{n}" for n in range(2, 10)]


async def test_a_connection_lost_while_it_waits_loses_nothing(stage: Stage) -> None:
    await ten_dead(stage)
    task = redriving(stage, canary=2)
    await stage.clock.advance(1)
    stage.driver.fail("inspect")
    await stage.clock.advance(1)
    with pytest.raises(ConnectionLost):
        await task
    assert len(await ids(stage.driver.inner, "billing.dlq")) == 8


@pytest.mark.parametrize("name", ["canary", "patience"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
async def test_a_canary_that_makes_no_sense_is_refused(
    stage: Stage, name: str, value: float
) -> None:
    await ten_dead(stage)
    options: dict[str, Any] = {name: value}
    with pytest.raises(ConfigError, match=name):
        await stage.qc.dead_letters.redrive("billing", **options)


async def test_all_of_a_redrive_carry_its_name(stage: Stage) -> None:
    names: list[object] = []

    async def note(order: Order, message: Message) -> None:
        names.append(message.headers["x-replay-id"])

    async with running(await ten_dead(stage, handler=note)):
        task = redriving(stage, canary=1)
        await stage.clock.advance(1)
        await task
        await stage.clock.settle()
    assert len(names) == 10
    assert len(set(names)) == 1


async def test_sent_elsewhere_it_is_looked_for_where_that_queue_buries(stage: Stage) -> None:
    await ten_dead(stage)
    other = stage.qc.worker("other", retry=NoRetry())
    other.on(order_placed, always(ValueError("still no")))
    await stage.driver.declare(other.definition)
    async with running(other):
        task = redriving(stage, canary=2, to="other")
        await stage.clock.advance(1)
        assert "2 of the 2 sent ahead died again" in str((await task).stopped)
    assert len(await ids(stage.driver, "billing.dlq")) == 8


async def test_a_queue_taken_for_dead_letters_by_name_works_too(stage: Stage) -> None:
    await declared(stage.driver, "graveyard")
    worker = await ten_dead(stage)
    await stage.driver.send([dead_letter(f"g-{n}", to="graveyard") for n in range(4)])
    async with running(worker):
        task = asyncio.create_task(
            stage.qc.admin.dead_letters_by_name.redrive("graveyard", canary=2)
        )
        await stage.clock.advance(1)
        assert (await task).moved == 4


class Vague:
    """A broker that tells little, as some do."""

    def __init__(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        driver = stage.driver
        inspect = driver.inspect

        async def little(queues: Any = None) -> Any:
            told = await inspect(queues)
            return [replace(each, in_flight=None, delayed=None) for each in told]

        async def peek(queue: str, limit: int) -> list[Delivery]:
            assert queue.endswith(".dlq"), "this would mark what others work on"
            return list(await driver.inner.peek(queue, limit))

        monkeypatch.setattr(driver, "inspect", little)
        monkeypatch.setattr(driver, "peek", peek)
        monkeypatch.setattr(driver, "traits", replace(driver.traits, peek="marks"))


async def test_a_broker_that_tells_little_is_waited_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await ten_dead(stage)
    Vague(stage, monkeypatch)
    async with running(worker):
        task = redriving(stage, canary=2)
        await stage.clock.advance(29)
        assert not task.done()
        await stage.clock.advance(2)
        assert (await task).moved == 10


async def test_a_broker_that_tells_little_still_tells_of_deaths(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await ten_dead(stage, handler=always(ValueError("no")))
    Vague(stage, monkeypatch)
    async with running(worker):
        task = redriving(stage, canary=2)
        await stage.clock.advance(1)
        assert (await task).stopped is not None


def test_what_is_not_told_is_never_taken_for_nothing() -> None:
    assert not Traces(ready=None, in_flight=0, delayed=0).gone()
    assert not Traces(ready=0, in_flight=None, delayed=0).gone()
    assert Traces(ready=0, in_flight=None, delayed=0).gone(tells_held=False)
    assert not Traces(ready=1, in_flight=None, delayed=0).gone(tells_held=False)
