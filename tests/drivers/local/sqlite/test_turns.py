"""However much there is to do at one moment, the loop has its turns meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from types import ModuleType
from typing import Any, TypeAlias

import pytest

from queuecraft.drivers.base import ConnectionLost, Queue
from queuecraft.drivers.local.sqlite import SqliteDriver, contents, storage
from queuecraft.testing import FakeClock
from tests.drivers.local.sqlite.conftest import Opener
from tests.drivers.local.sqlite.file import messages

JOBS = Queue[Any]("jobs")
IDS = [f"m-{number:02}" for number in range(20)]
Noting: TypeAlias = Callable[[ModuleType, str], list[int]]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "DUE_AT_ONCE", 3)
    monkeypatch.setattr(contents, "SOME", 3)


@pytest.fixture
async def noting(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Noting]:
    """In which turns of the loop a function is called."""
    turn = 0

    async def count() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    def note(module: ModuleType, name: str) -> list[int]:
        turns: list[int] = []
        function = getattr(module, name)

        def noted(*arguments: Any) -> Any:
            turns.append(turn)
            return function(*arguments)

        monkeypatch.setattr(module, name, noted)
        return turns

    counting = asyncio.ensure_future(count())
    yield note
    counting.cancel()
    with suppress(asyncio.CancelledError):
        await counting


async def delayed(open_driver: Opener, clock: FakeClock) -> SqliteDriver:
    """With messages that are all due in five seconds."""
    driver = await open_driver(clock=clock)
    await driver.declare(JOBS)
    await driver.send(messages("jobs", *IDS, due_at=clock.now() + 5))
    return driver


async def test_what_is_due_at_one_moment_is_brought_forward_a_batch_a_turn_however_many_look(
    open_driver: Opener, noting: Noting
) -> None:
    clock = FakeClock()
    driver = await delayed(open_driver, clock)
    await clock.advance(5)
    turns = noting(storage, "bring_forward")

    seen = await asyncio.gather(*(driver.inspect() for _ in range(4)))

    assert [info.ready for (info,) in seen] == [20] * 4
    assert len(turns) == len(set(turns)) >= 7


async def test_whoever_looks_while_the_driver_is_closed_is_told_and_the_rest_is_due_later(
    open_driver: Opener,
) -> None:
    clock = FakeClock()
    driver = await delayed(open_driver, clock)
    await clock.advance(5)

    looking = asyncio.ensure_future(driver.inspect())
    await asyncio.sleep(0)
    await driver.close()

    with pytest.raises(ConnectionLost):
        await looking
    await driver.open()
    assert [each.sent.id for each in await driver.peek("jobs", 99)] == IDS


async def test_closing_amid_what_is_due_leaves_nothing_behind(open_driver: Opener) -> None:
    clock = FakeClock(turns=2)
    driver = await delayed(open_driver, clock)
    await driver.subscribe(JOBS, prefetch=1)

    await clock.advance(5)
    assert driver._errands, "it has begun, and is not done"
    await driver.close()
    for _ in range(3):
        await asyncio.sleep(0)

    assert not driver._errands
    await driver.open()
    assert [each.sent.id for each in await driver.peek("jobs", 99)] == IDS


@pytest.mark.usefixtures("no_poll")
async def test_nobody_waits_for_what_falls_due_while_they_wait(
    open_driver: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "DUE_AT_ONCE", 1)
    clock = FakeClock(turns=0)
    driver = await open_driver(clock=clock)
    await driver.declare(JOBS)
    subscription = await driver.subscribe(JOBS, prefetch=99)
    for after, id in enumerate(IDS):
        await driver.send(messages("jobs", id, due_at=clock.now() + after + 1))
    receiving = asyncio.ensure_future(subscription.receive(99, 60))

    while not receiving.done():
        await clock.advance(2)  # faster than they are brought forward
        await asyncio.sleep(0)

    assert len(await receiving) < len(IDS)


async def test_a_queue_is_deleted_a_batch_a_turn(open_driver: Opener, noting: Noting) -> None:
    driver = await open_driver()
    await driver.declare(JOBS)
    await driver.send(messages("jobs", *IDS))
    turns = noting(contents, "delete_some")

    await driver.delete("jobs")

    assert len(turns) == len(set(turns)) == 8
    assert await driver.inspect() == []
