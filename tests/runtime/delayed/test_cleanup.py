"""Cleaning up what is overdue: by each policy, in batches, every five minutes, and counted."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from queuecraft import ConnectionLost, Event, Queue, QueueCraft, QueueError
from queuecraft.facts import DelayedCleaned
from queuecraft.stores.base import DelayedStore
from queuecraft.stores.memory import MemoryDelayedStore
from queuecraft.testing import FakeClock
from tests.runtime.delayed.conftest import Make
from tests.runtime.delayed.looking import ids, noted, ready, waiting

order_placed = Event("order.placed", dict)


async def fill(qc: QueueCraft, count: int, *, delay: float = 1) -> list[str]:
    return [
        await qc.delayed.add(order_placed, {"n": n}, delay=delay, message_id=f"m-{n:05}")
        for n in range(count)
    ]


async def test_an_empty_cleanup_succeeds_with_nothing_and_is_counted(qc: QueueCraft) -> None:
    told = noted(qc, DelayedCleaned)
    result = await qc.delayed.cleanup()
    assert (result.cleaned, result.size, result.policy) == (0, 0, "deliver")
    stats = (await qc.delayed.stats()).cleanup
    assert (stats.runs, stats.failures, stats.success_rate) == (1, 0, 1.0)
    assert (stats.cleaned_last, stats.last_error) == (0, None)
    assert stats.last_run_at is not None
    assert stats.last_duration is not None
    assert [(each.cleaned, each.size, each.error) for each in told] == [(0, 0, None)]


async def test_what_is_due_is_delivered_late_and_nothing_else_is_touched(
    qc: QueueCraft, clock: FakeClock
) -> None:
    sent = await fill(qc, 3)
    await qc.delayed.add(order_placed, {}, delay=100, message_id="later")
    await clock.advance(10)
    result = await qc.delayed.cleanup()
    assert (result.cleaned, result.size, result.refused) == (3, 1, 0)
    assert await ids(qc) == sent
    assert await waiting(qc) == ["later"]


@pytest.mark.parametrize("policy", ["deliver", "dead_letter", "drop"])
async def test_batches_follow_one_another_until_nothing_is_overdue(
    make: Make, clock: FakeClock, policy: str
) -> None:
    qc = await make(policy=policy, batch=1000)
    await fill(qc, 2500)
    await clock.advance(3600)
    seen: list[int] = []
    result = await qc.delayed.cleanup(on_progress=seen.append)
    assert (result.cleaned, result.size, result.policy) == (2500, 0, policy)
    assert seen == [1000, 2000, 2500]
    stats = (await qc.delayed.stats()).cleanup
    assert (stats.cleaned_last, stats.cleaned_total, stats.runs) == (2500, 2500, 1)


async def test_dead_letters_can_be_seen_and_sent_back(make: Make, clock: FakeClock) -> None:
    qc = await make(policy="dead_letter")
    await qc.delayed.add(Queue("billing"), {"n": 1}, delay=1, headers={"tenant": "t1"})
    await qc.delayed.add(order_placed, {"n": 2}, delay=2)
    await clock.advance(100)
    assert (await qc.delayed.cleanup()).cleaned == 2
    queued, event = await qc.dead_letters.list("delayed")
    assert (queued.queue, queued.reason, queued.headers["tenant"]) == ("billing", "overdue", "t1")
    assert (event.queue, event.event) == ("delayed", "order.placed")
    assert (await qc.dead_letters.redrive("delayed")).moved == 1
    assert (await qc.dead_letters.redrive("delayed", to="billing")).moved == 1
    assert await ready(qc) == [{"n": 1}, {"n": 2}]
    assert {each.routing_key for each in await qc.admin.peek("billing")} == {
        "billing",
        "order.placed",
    }


async def test_what_is_dropped_is_gone(make: Make, clock: FakeClock) -> None:
    qc = await make(policy="drop")
    await fill(qc, 2)
    await clock.advance(100)
    assert (await qc.delayed.cleanup()).cleaned == 2
    assert (await ready(qc), await waiting(qc)) == ([], [])


@pytest.mark.parametrize("policy", ["dead_letter", "drop"])
async def test_the_mover_has_its_time_before_anything_is_taken_from_it(
    make: Make, clock: FakeClock, policy: str
) -> None:
    qc = await make(policy=policy, grace=60)
    await fill(qc, 2)
    await clock.advance(60.9)
    assert (await qc.delayed.cleanup()).cleaned == 0
    assert (await qc.delayed.stats()).overdue == 0
    await clock.advance(0.1)
    assert (await qc.delayed.stats()).overdue == 2
    assert (await qc.delayed.cleanup()).cleaned == 2


async def test_what_its_queue_refuses_is_not_cleaned_but_waits(
    qc: QueueCraft, clock: FakeClock
) -> None:
    await qc.delayed.add(Queue("nowhere"), {}, delay=1, message_id="stuck")
    await fill(qc, 2)
    await clock.advance(100)
    first, second = await qc.delayed.cleanup(), await qc.delayed.cleanup()
    assert (first.cleaned, first.refused, first.size) == (2, 1, 1)
    assert (second.cleaned, second.refused, second.size) == (0, 1, 1)
    assert await waiting(qc) == ["stuck"]


async def test_more_refused_than_a_batch_holds_does_not_go_round_in_circles(
    make: Make, clock: FakeClock
) -> None:
    qc = await make(batch=10)
    for n in range(25):
        await qc.delayed.add(Queue("nowhere"), {}, delay=1, message_id=f"stuck-{n}")
    await qc.delayed.add(order_placed, {}, delay=2)
    await clock.advance(100)
    result = await qc.delayed.cleanup()
    assert (result.cleaned, result.refused, result.size) == (1, 25, 25)


async def test_a_stuck_message_is_a_dead_letter_in_the_end_where_that_is_set(
    make: Make, clock: FakeClock
) -> None:
    qc = await make(policy="dead_letter", grace=60)
    async with qc.delayed.running():
        await qc.delayed.add(Queue("nowhere"), {"n": 1}, delay=1)
        await clock.advance(299)
        assert (await qc.delayed.stats()).size == 1
        await clock.advance(1)
        assert (await qc.delayed.stats()).size == 0
    (letter,) = await qc.dead_letters.list("delayed")
    assert letter.queue == "nowhere"
    assert letter.failures > 3


async def test_the_service_cleans_up_every_five_minutes(qc: QueueCraft, clock: FakeClock) -> None:
    told = noted(qc, DelayedCleaned)
    async with qc.delayed.running():
        await clock.advance(299)
        assert len(told) == 0
        await clock.advance(1)
        assert len(told) == 1
        await clock.advance(900)
        assert len(told) == 4
    await clock.advance(3600)
    assert len(told) == 4


@pytest.mark.parametrize("url", ["file"], indirect=True)
async def test_several_services_share_one_round_of_cleanups(make: Make, clock: FakeClock) -> None:
    one, other = await make(), await make()
    told = [noted(one, DelayedCleaned), noted(other, DelayedCleaned)]
    async with one.delayed.running():
        await clock.advance(150)
        async with other.delayed.running():
            await clock.advance(1050)
    assert sum(map(len, told)) == 4
    assert (await one.delayed.stats()).cleanup.runs == 4


async def test_a_cleanup_is_due_at_once_when_the_last_is_long_ago(
    qc: QueueCraft, clock: FakeClock
) -> None:
    await qc.delayed.cleanup()
    await clock.advance(1000)
    async with qc.delayed.running():
        await clock.advance(1)
        assert (await qc.delayed.stats()).cleanup.runs == 2


async def test_two_cleanups_at_once_clean_each_message_once(
    qc: QueueCraft, clock: FakeClock
) -> None:
    sent = await fill(qc, 50)
    await clock.advance(5)
    first, second = await asyncio.gather(qc.delayed.cleanup(), qc.delayed.cleanup())
    assert first.cleaned + second.cleaned == 50
    assert await ids(qc) == sent


async def test_a_failed_cleanup_is_counted_told_and_raised(
    qc: QueueCraft, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = noted(qc, DelayedCleaned)
    await fill(qc, 1)
    await clock.advance(5)

    async def broken(*_: Any, **__: Any) -> Any:
        raise QueueError("the disk is full")

    async with qc.delayed._place.store() as store:
        with monkeypatch.context() as patch:
            patch.setattr(type(store), "move", broken, raising=False)
            patch.setattr(type(store), "take", broken)
            with pytest.raises(QueueError, match="the disk is full"):
                await qc.delayed.cleanup()
    await qc.delayed.cleanup()
    stats = (await qc.delayed.stats()).cleanup
    assert (stats.runs, stats.failures, stats.success_rate) == (2, 1, 0.5)
    assert (stats.last_error, stats.cleaned_last) == (None, 1)
    assert [each.error for each in told] == ["the disk is full", None]


async def test_a_cleanup_that_cannot_reach_the_store_is_counted_once_it_can(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with QueueCraft(clock=clock) as qc:
        told = noted(qc, DelayedCleaned)
        store: DelayedStore = MemoryDelayedStore()
        away = True

        async def ready(*, patient: bool) -> DelayedStore:
            if away:
                raise ConnectionLost("no answer")
            return store

        monkeypatch.setattr(qc.delayed._place, "ready", ready)
        for _ in range(3):
            with pytest.raises(ConnectionLost):
                await qc.delayed.cleanup()
        away = False
        await qc.delayed.cleanup()
        stats = (await qc.delayed.stats()).cleanup
        assert (stats.runs, stats.failures, stats.success_rate) == (4, 3, 0.25)
        assert [each.error for each in told] == ["no answer"] * 3 + [None]


async def test_the_moment_of_the_last_cleanup_is_told(qc: QueueCraft, clock: FakeClock) -> None:
    await clock.advance(7)
    await qc.delayed.cleanup()
    at = (await qc.delayed.stats()).cleanup.last_run_at
    assert at == datetime.fromtimestamp(clock.now(), UTC)
