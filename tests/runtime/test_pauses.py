"""Pauses that all processes see: what they do to workers, and what they leave alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from queuecraft import PublishError, QueueCraft, QueueError, UnknownQueue
from queuecraft.drivers.base import Delivery, Outgoing
from queuecraft.model.ids import new_id
from queuecraft.model.naming import PAUSES
from queuecraft.model.pause import Pause
from queuecraft.runtime import pauses as module
from queuecraft.testing import FaultyDriver
from tests.runtime.support import Order, eventually, order_placed, running, staged

OFTEN = 0.01


async def nothing(order: Order) -> None: ...


async def test_the_workers_of_this_process_stand_still_at_once() -> None:
    async with staged() as stage:
        worker = stage.qc.worker("billing").on(order_placed, nothing)
        other = stage.qc.worker("audit").on(order_placed, nothing)
        async with running(worker, other):
            await stage.qc.admin.pause("billing", reason="the bank is down", by="ada")
            assert worker.paused == "paused by ada: the bank is down"
            assert other.paused is None
            assert stage.qc.health_check().paused == {"billing": worker.paused}
            await stage.qc.publish(order_placed, Order("o"))
            await stage.clock.settle()
            assert (worker.counters.received, other.counters.received) == (0, 1)
            await stage.qc.admin.resume("billing")
            await stage.clock.settle()
            assert worker.counters.succeeded == 1


async def test_a_pause_by_hand_is_not_undone_by_a_resume_from_elsewhere() -> None:
    async with staged() as stage:
        worker = stage.qc.worker("billing").on(order_placed, nothing)
        async with running(worker):
            worker.pause("maintenance")
            await stage.qc.admin.pause("billing", by="ada")
            assert worker.paused == "maintenance"
            await stage.qc.admin.resume("billing")
            assert worker.paused == "maintenance"
            await stage.qc.admin.pause("billing", by="ada")
            worker.resume()
            worker.pause("maintenance")
            await stage.qc.admin.resume("billing")
            assert worker.paused == "maintenance"


async def test_a_pause_by_hand_outlasts_one_from_elsewhere_that_came_first() -> None:
    async with staged() as stage:
        worker = stage.qc.worker("billing").on(order_placed, nothing)
        async with running(worker):
            await stage.qc.admin.pause("billing", by="ada")
            worker.pause("maintenance")
            assert worker.paused == "maintenance"
            await stage.qc.admin.resume("billing")
            assert worker.paused == "maintenance"
            worker.resume()
            assert worker.paused is None


async def test_a_pause_holds_though_code_resumes_the_worker(tmp_path: Path) -> None:
    async with QueueCraft("local://", presence=OFTEN) as qc:
        worker = qc.worker("billing").on(order_placed, nothing)
        async with running(worker):
            await qc.admin.pause("billing", by="ada")
            worker.resume()
            await eventually(lambda: worker.paused == "paused by ada")


async def test_notes_that_are_gone_resume_nothing() -> None:
    async with QueueCraft("local://", presence=OFTEN) as qc:
        worker = qc.worker("billing").on(order_placed, nothing)
        async with running(worker):
            await qc.admin.pause("billing")
            await qc.admin.purge(PAUSES)
            driver = qc._engine.connection.current
            assert driver is not None
            looked = qc._engine.pauses._rested
            await eventually(lambda: qc._engine.pauses._rested != looked)
            assert worker.paused == "paused"
            await qc.admin.resume("billing")
            assert worker.paused is None


async def test_the_newest_word_counts_whatever_the_clocks_say(tmp_path: Path) -> None:
    url = f"local://{tmp_path}/queue.db"
    async with QueueCraft(url) as qc, QueueCraft(url) as operator:
        await qc.admin.declare("billing")
        driver = qc._engine.connection.current
        assert driver is not None
        await qc.admin.pause("billing", by="ada")
        ahead = Pause(queue="billing", at=qc._engine.clock.now() + 3600, by="bob")
        await driver.send([Outgoing(ahead.written(), "m-1", queue=PAUSES)])
        assert (await operator.admin.pauses())["billing"].by == "bob"
        await operator.admin.resume("billing")
        assert await operator.admin.pauses() == {}
        async with QueueCraft(url) as third:
            assert await third.admin.pauses() == {}


@pytest.mark.parametrize("first", [True, False])
async def test_of_two_words_of_one_moment_all_take_the_same(first: bool) -> None:
    async with QueueCraft("local://") as qc:
        await qc.admin.declare("billing")
        driver = qc._engine.connection.current
        assert driver is not None
        await driver.declare(module.PLACE)
        for paused in (first, not first):
            note = Pause(queue="billing", at=9e18, paused=paused)
            await driver.send([Outgoing(note.written(), new_id(), queue=PAUSES)])
        assert list(await qc.admin.pauses()) == ["billing"]
        await qc.admin.resume("billing")  # though it was said in a year that nobody lives to see
        assert await qc.admin.pauses() == {}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"queue": 5}',
        b'{"queue": "billing", "at": "now"}',
        b'{"queue": "\xff", "at": 1}',
        b'{"queue": "billing", "at": 1, "more": ' + b"[" * 100_000,
    ],
    ids=["empty", "cut", "list", "type", "time", "no text", "deep"],
)
async def test_what_is_no_note_is_passed_over(body: bytes) -> None:
    async with QueueCraft("local://") as qc:
        await qc.admin.declare("billing")
        driver = qc._engine.connection.current
        assert driver is not None
        await driver.declare(module.PLACE)
        await driver.send([Outgoing(body, new_id(), queue=PAUSES)])
        assert await qc.admin.pauses() == {}
        worker = qc.worker("billing").on(order_placed, nothing)
        async with running(worker):
            assert worker.paused is None
            await qc.admin.pause("billing", by="ada")
            assert worker.paused == "paused by ada"


async def test_what_newer_notes_have_overtaken_is_swept_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SUPERSEDED", 10)
    url = f"local://{tmp_path}/queue.db"
    async with QueueCraft(url) as qc:
        for name in ("billing", "audit"):
            await qc.admin.declare(name)
        await qc.admin.pause("audit", reason="kept")
        for number in range(40):
            await qc.admin.pause("billing", reason=str(number))
        info = await qc.admin.inspect(PAUSES)
        assert info.ready is not None
        assert info.ready <= 15
        async with QueueCraft(url) as other:
            told = await other.admin.pauses()
            assert {name: each.reason for name, each in told.items()} == {
                "audit": "kept",
                "billing": "39",
            }


async def test_pausing_what_does_not_exist_is_refused_and_so_is_what_cannot_be_written_down() -> (
    None
):
    driver = FaultyDriver()
    async with QueueCraft(drivers=[driver]) as qc:
        with pytest.raises(UnknownQueue):
            await qc.admin.pause("billing")
        with pytest.raises(UnknownQueue):
            await qc.admin.resume("billing")
        assert await qc.admin.queues() == []
        await qc.admin.declare("billing")
        driver.reject(to=PAUSES)
        with pytest.raises(PublishError, match="it cannot be written down that queue 'billing'"):
            await qc.admin.pause("billing")
        assert await qc.admin.pauses() == {}


async def test_a_pause_of_a_queue_that_is_gone_can_be_resumed() -> None:
    async with QueueCraft("local://") as qc:
        await qc.admin.declare("billing")
        await qc.admin.pause("billing")
        await qc.admin.delete("billing")
        await qc.admin.resume("billing")
        assert await qc.admin.pauses() == {}


async def test_a_worker_begins_though_the_broker_cannot_tell_and_stands_still_when_it_can() -> None:
    driver = FaultyDriver()
    async with QueueCraft(drivers=[driver], presence=OFTEN) as qc:
        worker = qc.worker("billing").on(order_placed, nothing)
        await worker.declare()
        await qc.admin.pause("billing")
    driver = FaultyDriver(driver.inner)
    driver.fail("inspect", QueueError("not now"), times=2)
    async with QueueCraft(drivers=[driver], presence=OFTEN) as qc:
        worker = qc.worker("billing").on(order_placed, nothing)
        async with running(worker):
            await eventually(lambda: worker.state == "paused")


async def test_a_connection_lost_while_looking_is_found_again_before_a_worker_begins() -> None:
    driver = FaultyDriver()
    async with QueueCraft(drivers=[driver], reconnect_delay=0.01) as qc:
        worker = qc.worker("billing").on(order_placed, nothing)
        await worker.declare()
        await qc.admin.pause("billing")
    other = FaultyDriver(driver.inner)
    async with QueueCraft(drivers=[other], reconnect_delay=0.01) as qc:
        worker = qc.worker("billing").on(order_placed, nothing)
        other.fail("inspect")
        async with running(worker):
            assert worker.state == "paused"
            assert other.calls["open"] == 2


async def test_while_nothing_is_said_a_look_is_one_question() -> None:
    driver = FaultyDriver()
    async with (
        QueueCraft(drivers=[driver], presence=OFTEN) as qc,
        running(qc.worker("billing").on(order_placed, nothing)),
    ):
        await eventually(lambda: driver.calls["inspect"] > 10)
        assert driver.calls["peek"] == 0
        await qc.admin.pause("billing")
        await eventually(lambda: driver.calls["peek"] > 1)
        before = driver.calls["inspect"], driver.calls["peek"]
        await eventually(lambda: driver.calls["inspect"] > before[0] + 20)
        peeks = driver.calls["peek"] - before[1]
        assert peeks <= (driver.calls["inspect"] - before[0]) / module.REST + 1


async def test_without_presence_a_pause_is_not_seen() -> None:
    async with QueueCraft("local://", presence=0) as qc:
        worker = qc.worker("billing").on(order_placed, nothing)
        async with running(worker):
            await qc.admin.pause("billing")
            assert worker.paused is None
        async with running(worker):
            assert worker.paused is None


async def test_many_who_look_at_once_never_undo_a_pause() -> None:
    """As on a broker where looking at messages hides them from others."""

    class Hiding(FaultyDriver):
        async def peek(self, queue: str, limit: int) -> list[Delivery]:
            found = list(await super().peek(queue, limit))
            return [] if self.calls["peek"] % 2 else found

    driver = Hiding()
    async with QueueCraft(drivers=[driver], presence=OFTEN) as qc:
        worker = qc.worker("billing").on(order_placed, nothing)
        async with running(worker):
            await qc.admin.pause("billing")
            for _ in range(20):
                await asyncio.sleep(OFTEN)
                assert worker.paused == "paused"
