"""Messages on their way from one queue to another: all there, unchanged, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from queuecraft import ConfigError, ConnectionLost, PeekedMessage, Queue, QueueCraft, Redrive
from queuecraft.clock import Clock
from queuecraft.drivers.base import Driver, Outgoing
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.testing import failing
from tests.conformance.test_local import PlainDriver
from tests.runtime.support import Stage, contents, declared, ids, quiet, sparing, staged


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with staged() as stage:
        yield stage


async def filled(driver: Driver, count: int, **fields: Any) -> list[str]:
    """A queue `here` with so many messages, and an empty one `there`."""
    await declared(driver, "here", "there")
    names = [f"m-{number}" for number in range(count)]
    body = fields.pop("body", b"{}")
    await driver.send([Outgoing(body, name, queue="here", **fields) for name in names])
    return names


def even(message: PeekedMessage) -> bool:
    return int(message.id.removeprefix("m-")) % 2 == 0


async def everywhere(driver: Driver) -> list[str]:
    return [*await ids(driver, "here"), *await ids(driver, "there")]


async def test_everything_moves_in_order(stage: Stage) -> None:
    names = await filled(stage.driver, 250)
    report = await stage.qc.admin.move("here", "there")
    assert report == Redrive(total=250, seen=250, moved=250)
    assert await ids(stage.driver, "here") == []
    assert await ids(stage.driver, "there") == names


async def test_a_moved_message_is_the_same_but_for_its_queue(stage: Stage) -> None:
    await declared(stage.driver, "here", "there")
    sent = Outgoing(
        b"\xff\x00",
        "m-1",
        routing_key="order.placed",
        timestamp=1_700_000_000.0,
        content_type="text/strange",
        content_encoding="br",
        key="k",
        queue="here",
        headers={"tenant": "t1", "x-retry-count": 2, "x-original-queue": "other", "x-death": 1},
        expires_at=1_900_000_000.0,
        priority=3,
        persistent=False,
        correlation_id="c",
        reply_to="qc.reply.1",
    )
    await stage.driver.send([sent])
    await stage.qc.admin.move("here", "there")
    (moved,) = await contents(stage.driver, "there")
    for name in (*sent.__struct_fields__,):
        if name not in ("queue", "headers"):
            assert getattr(moved, name) == getattr(sent, name), name
    assert moved.queue == "there"
    # What a broker writes about its own doings does not travel.
    assert {**moved.headers, "x-death": 1} == sent.headers


async def test_a_choice_moves_and_the_rest_stays_in_order(stage: Stage) -> None:
    names = await filled(stage.driver, 250)
    report = await stage.qc.admin.move("here", "there", where=even)
    assert (report.moved, report.kept, report.done) == (125, 125, True)
    assert await ids(stage.driver, "there") == names[::2]
    assert await ids(stage.driver, "here") == names[1::2]
    peeked = await stage.driver.peek("here", 1000)
    assert {each.redeliveries for each in peeked} == {0}


@pytest.mark.parametrize("where", [None, even])
async def test_a_limit_counts_what_moves(stage: Stage, where: Any) -> None:
    names = await filled(stage.driver, 250)
    report = await stage.qc.admin.move("here", "there", limit=101, where=where)
    chosen = names[:101] if where is None else names[:201:2]
    assert report.moved == 101
    assert await ids(stage.driver, "there") == chosen
    assert await ids(stage.driver, "here") == [each for each in names if each not in chosen]


async def test_a_choice_that_fails_stops_the_move_without_a_loss(stage: Stage) -> None:
    names = await filled(stage.driver, 5)

    def choose(message: PeekedMessage) -> bool:
        if message.id == "m-3":
            raise LookupError("no idea")
        return True

    with pytest.raises(LookupError):
        await stage.qc.admin.move("here", "there", where=choose)
    assert sorted(await everywhere(stage.driver)) == names


async def test_a_dry_run_only_counts(stage: Stage) -> None:
    names = await filled(stage.driver, 250)
    report = await stage.qc.admin.move("here", "there", where=even, dry_run=True)
    assert (report.moved, report.kept, report.dry_run) == (125, 125, True)
    assert await ids(stage.driver, "here") == names


async def test_an_empty_queue_is_moved_at_once(stage: Stage) -> None:
    await declared(stage.driver, "here", "there")
    for dry_run in (True, False):
        report = await stage.qc.admin.move("here", "there", dry_run=dry_run)
        assert report == Redrive(total=0, dry_run=dry_run)


async def test_a_rate_is_kept(stage: Stage) -> None:
    await filled(stage.driver, 3)
    task = asyncio.ensure_future(stage.qc.admin.move("here", "there", rate=1))
    for moved in (1, 2, 3):
        await stage.clock.settle()
        assert len(await ids(stage.driver, "there")) == moved
        await stage.clock.advance(1)
    await task


async def test_progress_is_told_as_it_goes(stage: Stage) -> None:
    await filled(stage.driver, 250)
    told: list[Redrive] = []
    await stage.qc.admin.move("here", "there", on_progress=told.append)
    assert [each.moved for each in told] == [100, 200, 250]


async def test_what_arrives_meanwhile_is_left_alone(stage: Stage) -> None:
    await filled(stage.driver, 150)

    async def more() -> None:
        await stage.driver.send([Outgoing(b"", "late", queue="here")])

    tasks: list[asyncio.Task[None]] = []
    report = await stage.qc.admin.move(
        "here", "there", on_progress=lambda _: tasks.append(asyncio.ensure_future(more()))
    )
    await asyncio.gather(*tasks)
    assert report.moved == 150
    assert set(await ids(stage.driver, "here")) == {"late"}


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": -1}, {"rate": 0}, {"rate": -2.0}])
async def test_a_number_that_makes_no_sense_is_refused(stage: Stage, wrong: dict[str, Any]) -> None:
    names = await filled(stage.driver, 2)
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        await stage.qc.admin.move("here", "there", **wrong)
    assert await ids(stage.driver, "here") == names


async def test_a_queue_is_not_moved_onto_itself(stage: Stage) -> None:
    await filled(stage.driver, 1)
    with pytest.raises(ConfigError, match="one queue"):
        await stage.qc.admin.move("here", "here")


async def test_what_the_target_refuses_stays(stage: Stage) -> None:
    await filled(stage.driver, 3)
    stage.driver.reject(to="there", times=1)
    report = await stage.qc.admin.move("here", "there")
    assert (report.moved, report.refused) == (2, 1)
    assert report.errors[0].startswith("m-0: ")
    assert await ids(stage.driver, "here") == ["m-0"]


# -- interrupted -----------------------------------------------------------------------------


@pytest.mark.parametrize("turns", range(0, 30, 3))
async def test_cancelled_at_any_moment_nothing_is_lost(turns: int) -> None:
    async with staged(inline=False) as stage:
        names = await filled(stage.driver, 5)
        task = asyncio.ensure_future(stage.qc.admin.move("here", "there"))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await quiet()
        assert sorted(set(await everywhere(stage.driver))) == names
        assert (await stage.driver.topology()).consumers == ()


async def test_a_connection_lost_in_the_middle_loses_nothing(stage: Stage) -> None:
    names = await filled(stage.driver, 5)
    task = asyncio.ensure_future(stage.qc.admin.move("here", "there", rate=1))
    await stage.clock.advance(2)
    await stage.driver.drop()
    await stage.clock.advance(1)
    with pytest.raises(ConnectionLost):
        await task
    await stage.clock.advance(40)
    assert sorted(await everywhere(stage.driver)) == names
    assert (await stage.qc.admin.move("here", "there")).moved == 2


@pytest.mark.parametrize("driver", [MemoryDriver, PlainDriver])
@pytest.mark.parametrize(
    "point", ["move.after_send", "ack.before", "move.after_ack", "redrive.after_move"]
)
@pytest.mark.parametrize("skip", [0, 1])
async def test_interrupted_at_a_failpoint_nothing_is_lost(
    driver: type[MemoryDriver], point: str, skip: int
) -> None:
    inner = driver(Clock())
    async with QueueCraft(drivers=[inner]) as qc:
        names = await filled(inner, 250)
        with failing(point, RuntimeError("the power is gone"), skip=skip) as passes:
            try:
                await qc.admin.move("here", "there")
            except RuntimeError:
                assert passes.count
        found = await everywhere(inner)
        assert set(found) == set(names)
        assert len(found) <= 250 + 100  # at most one batch twice
        assert (await inner.topology()).consumers == ()
        await qc.admin.move("here", "there")
        assert await ids(inner, "here") == []
        assert set(await ids(inner, "there")) == set(names)


async def test_a_worker_at_work_meanwhile_gets_what_the_move_does_not(stage: Stage) -> None:
    names = await filled(stage.driver, 250)
    consumer = await stage.driver.subscribe(Queue("here"), prefetch=10)
    taken = await consumer.receive(10, 0)
    report = await stage.qc.admin.move("here", "there")
    assert report.moved == 240
    assert [each.sent.id for each in taken] + await ids(stage.driver, "there") == names


async def test_a_move_that_is_not_given_everything_says_how_far_it_came(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    sparing(monkeypatch, MemoryDriver, 4)
    names = await filled(stage.driver, 10)
    task = asyncio.ensure_future(
        stage.qc.admin.move("here", "there", where=lambda message: message.id in ("m-1", "m-9"))
    )
    await stage.clock.advance(1)
    report = await task
    assert (report.seen, report.moved, report.kept) == (5, 1, 4)
    assert report.stopped == "only 5 of 10 could be looked at; run it again"
    assert await ids(stage.driver, "here") == [each for each in names if each != "m-1"]


async def test_a_rated_move_holds_nothing_for_longer_than_a_broker_allows(stage: Stage) -> None:
    names = await filled(stage.driver, 20)
    before = stage.driver.calls["subscribe"]
    task = asyncio.ensure_future(stage.qc.admin.move("here", "there", where=even, rate=1 / 300))
    await stage.clock.settle()
    await stage.clock.advance(3600)
    assert await task == Redrive(total=20, seen=20, moved=10, kept=10)
    assert stage.driver.calls["subscribe"] - before == 3
    assert await ids(stage.driver, "there") == names[::2]
    assert await ids(stage.driver, "here") == names[1::2]
