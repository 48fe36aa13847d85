"""Calling messages off while they are on their way: either it is too late, or they never arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from queuecraft import ConnectionLost, QueueCraft
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.runtime.delayed.delivery import HOLD
from queuecraft.stores.base import DelayedStore
from queuecraft.stores.memory import MemoryDelayedStore
from queuecraft.testing import FakeClock, FaultyDriver
from tests.runtime.delayed.looking import ids, waiting


@pytest.fixture
def driver(clock: FakeClock) -> FaultyDriver:
    return FaultyDriver(MemoryDriver(clock), inline=False)


@pytest.fixture
async def qc(driver: FaultyDriver, clock: FakeClock) -> AsyncIterator[QueueCraft]:
    async with QueueCraft(drivers=[driver], clock=clock) as qc:
        await qc.admin.declare("billing", "order.*")
        yield qc


async def add(qc: QueueCraft, *names: str, delay: float = 1) -> None:
    for name in names:
        await qc.delayed.add("order.placed", {}, delay=delay, message_id=name)


async def test_what_a_slow_broker_is_being_sent_cannot_be_cancelled_any_more(
    qc: QueueCraft, driver: FaultyDriver, clock: FakeClock
) -> None:
    await add(qc, "m-1")
    hang = driver.hang()
    async with qc.delayed.running():
        await clock.advance(1)
        await hang.reached()
        for _ in range(10):
            await clock.advance(HOLD / 2)
            assert not await qc.delayed.cancel("m-1")
        hang.release()
        await clock.advance(1)
        assert (await ids(qc), await waiting(qc)) == (["m-1"], [])
        assert len(clock.pending) == 2  # nothing is held on to any more


@pytest.mark.parametrize("renews", [True, False])
async def test_what_was_cancelled_while_its_turn_was_waited_for_is_not_sent(
    qc: QueueCraft,
    driver: FaultyDriver,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    renews: bool,
) -> None:
    if not renews:  # as a store that was made before stores could
        monkeypatch.setattr(MemoryDelayedStore, "renew", DelayedStore.renew)
    await add(qc, "m-1")
    await add(qc, "m-2", "m-3", delay=2)
    hang = driver.hang()
    async with qc.delayed.running():
        await clock.advance(1)
        await hang.reached()
        await clock.advance(1)
        cleanup = asyncio.create_task(qc.delayed.cleanup())  # has taken two, and waits
        await clock.advance(HOLD - 1)
        assert not await qc.delayed.cancel("m-2")
        await clock.advance(1)
        assert await qc.delayed.cancel("m-2")
        hang.release()
        await cleanup
        await clock.advance(1)
    assert (await ids(qc), await waiting(qc)) == (["m-1", "m-3"], [])


async def test_a_store_that_is_away_for_a_moment_is_asked_again(
    qc: QueueCraft,
    driver: FaultyDriver,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def away(*_: object) -> None:
        raise ConnectionLost("no answer")

    await add(qc, "m-1")
    hang = driver.hang()
    async with qc.delayed.running():
        await clock.advance(1)
        await hang.reached()
        with monkeypatch.context() as patch:
            patch.setattr(MemoryDelayedStore, "renew", away)
            await clock.advance(HOLD / 2)
        await clock.advance(HOLD)
        assert not await qc.delayed.cancel("m-1")
        hang.release()
        await clock.advance(1)
    assert "on their way cannot be held for longer: no answer" in caplog.text
