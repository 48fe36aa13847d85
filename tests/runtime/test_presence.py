"""Signs of life: who gives them, what they say, and that they are in nobody's way."""

from __future__ import annotations

import asyncio
import logging
import os

import pytest

from queuecraft import ConnectionLost, QueueCraft, QueueError
from queuecraft.facts import MessagesSucceeded
from queuecraft.middleware import OutageGuard
from queuecraft.model.presence import Presence
from queuecraft.testing import FaultyDriver, MockQueueCraft, testing
from tests.runtime.support import Order, eventually, order_placed, running, staged

OFTEN = 0.01


async def seen(qc: QueueCraft) -> list[Presence]:
    """The processes that have given a sign of life."""
    await asyncio.sleep(0.001)
    return await qc.admin.workers() or []


async def nothing(order: Order) -> None: ...


async def test_a_process_is_seen_at_once_when_its_first_worker_runs_and_gone_with_its_last() -> (
    None
):
    async with staged() as stage:
        one = stage.qc.worker("one").on(order_placed, nothing)
        two = stage.qc.worker("two", concurrency=4).on(order_placed, nothing)
        await stage.clock.settle()
        assert await seen(stage.qc) == []
        async with running(one):
            async with running(two):
                await stage.clock.settle()
                (process,) = await seen(stage.qc)
                assert (process.pid, process.state, process.every) == (
                    os.getpid(),
                    "connected",
                    5.0,
                )
                assert process.started_at == process.at == stage.clock.now()
                assert {each.queue: each.concurrency for each in process.workers} == {
                    "one": 1,
                    "two": 4,
                }
            assert len(await seen(stage.qc)) == 1
        assert await seen(stage.qc) == []


async def test_one_process_keeps_its_name_and_another_has_its_own() -> None:
    names: set[str] = set()
    for _ in range(2):
        async with staged() as stage:
            worker = stage.qc.worker("one").on(order_placed, nothing)
            for _ in range(2):
                async with running(worker):
                    await stage.clock.settle()
                    names |= {each.id for each in await seen(stage.qc)}
    assert len(names) == 2


async def test_without_presence_nobody_is_seen_and_nothing_is_asked() -> None:
    async with (
        staged(presence=0) as stage,
        running(stage.qc.worker("one").on(order_placed, nothing)),
    ):
        await stage.clock.settle()
        assert not {"announce", "inspect", "peek"} & set(stage.driver.calls)
        assert await seen(stage.qc) == []


async def test_a_sign_of_life_tells_what_was_done_and_how_long_that_took() -> None:
    async with QueueCraft("local://", presence=OFTEN) as qc:
        worker = qc.worker("billing").on(order_placed, nothing)
        async with running(worker):
            await asyncio.sleep(0)  # so that it counts
            await eventually(lambda: qc._engine.facts.wants(MessagesSucceeded))
            await qc.publish_many(order_placed, [Order("o")] * 20)
            async with asyncio.timeout(5):
                while True:
                    processes = await seen(qc)
                    if processes and processes[0].workers[0].succeeded == 20:
                        break
            (told,) = processes[0].workers
            assert (told.received, told.settled, told.failed) == (20, 20, 0)
            assert sum(told.durations) == 20
            assert processes[0].sent == 20


async def test_under_load_a_few_durations_are_counted_and_the_rest_is_left_alone() -> None:
    async with QueueCraft("local://", presence=60) as qc:
        worker = qc.worker("billing", prefetch=10).on(order_placed, nothing)
        async with running(worker):
            facts = qc._engine.facts
            await eventually(lambda: facts.wants(MessagesSucceeded))
            await qc.publish_many(order_placed, [Order("o")] * 500)
            await eventually(lambda: worker.counters.succeeded == 500)
            assert not facts.wants(MessagesSucceeded)
            (told,) = qc._parts.presence.presence().workers
            assert sum(told.durations) == 200


async def test_circuits_are_told_of() -> None:
    async def fail(order: Order) -> None:
        raise OSError("down")

    guard = OutageGuard("bank", minimum=1)
    async with QueueCraft("local://", presence=OFTEN) as qc:
        worker = qc.worker("billing", middleware=[guard]).on(order_placed, fail)
        async with running(worker), asyncio.timeout(5):
            await qc.publish(order_placed, Order("o"))
            while not (found := await seen(qc)) or not found[0].circuits:
                pass
            assert found[0].circuits == {"bank": "open"}


async def test_an_error_of_the_broker_is_said_once_and_touches_no_work(
    caplog: pytest.LogCaptureFixture,
) -> None:
    driver = FaultyDriver()
    driver.fail("announce", QueueError("no room"), times=2)
    driver.fail("announce", ConnectionLost("away"), times=2)
    handled: list[Order] = []

    async def note(order: Order) -> None:
        handled.append(order)

    caplog.set_level(logging.DEBUG, "queuecraft")
    async with (
        QueueCraft(drivers=[driver], presence=OFTEN) as qc,
        running(qc.worker("billing").on(order_placed, note)),
    ):
        await eventually(lambda: driver.calls["announce"] > 5)
        await qc.publish(order_placed, Order("o"))
        await eventually(lambda: handled)
        assert driver.calls["open"] == 1
        assert len(await seen(qc)) == 1
    told = [each for each in caplog.records if "no sign of life" in each.getMessage()]
    assert [each.levelname for each in told] == ["DEBUG"]


async def test_while_the_broker_is_away_there_are_no_signs_and_afterwards_there_are_again() -> None:
    driver = FaultyDriver()
    async with (
        QueueCraft(drivers=[driver], presence=OFTEN, reconnect_delay=0.05) as qc,
        running(qc.worker("billing").on(order_placed, nothing)),
    ):
        await eventually(lambda: driver.calls["announce"])
        driver.refuse(opens=2)
        await driver.drop()
        await eventually(lambda: qc.connection_state == "reconnecting")
        before = driver.calls["announce"]
        await asyncio.sleep(3 * OFTEN)
        assert driver.calls["announce"] == before
        await eventually(lambda: driver.calls["announce"] > before)
        assert len(await seen(qc)) == 1


async def test_a_broker_that_never_answers_does_not_keep_a_worker_from_stopping() -> None:
    class Silent(FaultyDriver):
        async def announce(self, name: str, note: bytes, *, ttl: float) -> None:
            self.calls["announce"] += 1
            await asyncio.Event().wait()

    driver = Silent()
    async with (
        QueueCraft(drivers=[driver]) as qc,
        running(qc.worker("billing").on(order_placed, nothing)),
    ):
        await eventually(lambda: driver.calls["announce"])


async def test_hours_pass_in_no_time_all_the_same() -> None:
    async with MockQueueCraft() as mock:
        worker = mock.worker("billing").on(order_placed, nothing)
        async with running(worker):
            await mock.clock.advance(3600)
            assert mock.clock.pending == (30.0,)  # the worker itself, which waits for messages
            assert mock.driver.calls["announce"] == 1


async def test_a_rehearsal_leaves_no_task_behind() -> None:
    qc = QueueCraft("amqp://nowhere.example")
    qc.worker("billing").on(order_placed, nothing)
    async with testing(qc) as app:
        await app.advance(3600)
        assert app.driver.calls["announce"] == 1
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_notes_that_are_none_of_ours_are_passed_over() -> None:
    async with QueueCraft("local://") as qc:
        driver = qc._engine.connection.current
        assert driver is not None
        await driver.announce("worker.x", b"{", ttl=60)
        await driver.announce("worker.y", b'{"id": 5}', ttl=60)
        await driver.announce("worker.z", b'{"id": "\xff"}', ttl=60)
        await driver.announce("worker.deep", b'{"more": ' + b"[" * 100_000, ttl=60)
        await driver.announce("other", b"hello", ttl=60)
        assert await qc.admin.workers() == []


async def test_a_process_that_was_forked_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    async with staged() as stage:
        worker = stage.qc.worker("billing").on(order_placed, nothing)
        async with running(worker):
            await stage.clock.settle()
            (parent,) = await seen(stage.qc)
        monkeypatch.setattr(os, "getpid", lambda: parent.pid + 1)
        async with running(worker):
            await stage.clock.settle()
            (child,) = await seen(stage.qc)
    assert child.pid == parent.pid + 1
    assert child.id != parent.id


async def test_what_is_paused_is_not_known_and_the_sign_is_given_all_the_same() -> None:
    driver = FaultyDriver()
    async with QueueCraft(drivers=[driver], presence=OFTEN) as qc:
        worker = qc.worker("billing").on(order_placed, nothing)
        async with running(worker):
            driver.fail("inspect", QueueError("not for you"), times=1000)
            before = driver.calls["announce"]
            await eventually(lambda: driver.calls["announce"] > before + 3)
            assert qc.connection_state == "connected"
