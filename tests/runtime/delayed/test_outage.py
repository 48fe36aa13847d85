"""Delayed messages while the broker, or the store, is away: nothing is lost, and all goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from queuecraft import ConnectionLost, PublishError, QueueCraft, QueueError
from queuecraft.drivers.base import Outgoing, Receipt
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.model.delayed import DelayedSettings
from queuecraft.stores.base import Added, DelayedStore, Waiting
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


async def add(qc: QueueCraft, *names: str) -> None:
    for name in names:
        await qc.delayed.add("order.placed", {}, delay=1, message_id=name)


async def test_a_connection_that_breaks_while_sending_is_found_again(
    qc: QueueCraft, driver: FaultyDriver, clock: FakeClock
) -> None:
    await add(qc, "m-1", "m-2")
    driver.fail("send", ConnectionLost("cut"))
    async with qc.delayed.running():
        await clock.advance(10)
    assert (await ids(qc), await waiting(qc)) == (["m-1", "m-2"], [])


async def test_messages_wait_as_long_as_the_broker_is_away(
    qc: QueueCraft, driver: FaultyDriver, clock: FakeClock
) -> None:
    await add(qc, "m-1")
    async with qc.delayed.running():
        driver.fail("send", ConnectionLost("cut"))
        driver.refuse(opens=20)
        await clock.advance(60)
        assert await waiting(qc) == ["m-1"]
        await clock.advance(900)
        assert (await ids(qc), await waiting(qc)) == (["m-1"], [])


@pytest.mark.parametrize("stored", [True, False])
async def test_an_answer_that_is_lost_may_deliver_twice_and_never_not_at_all(
    qc: QueueCraft, driver: FaultyDriver, clock: FakeClock, stored: bool
) -> None:
    await add(qc, "m-1", "m-2")
    driver.lose_answers([1], stored=stored)
    async with qc.delayed.running():
        await clock.advance(10)
    assert await ids(qc) == ["m-1", "m-2", *(["m-2"] if stored else [])]
    assert await waiting(qc) == []


async def test_a_batch_refused_as_a_whole_is_tried_one_by_one(
    qc: QueueCraft, driver: FaultyDriver, clock: FakeClock
) -> None:
    await add(qc, "m-1", "m-2", "m-3")
    await clock.advance(1)
    driver.fail("send", QueueError("one of them is too large"), times=2)
    result = await qc.delayed.cleanup()
    assert (result.cleaned, result.refused) == (2, 1)
    assert await waiting(qc) == ["m-1"]


async def test_one_that_the_driver_fails_at_does_not_hold_up_the_others(
    qc: QueueCraft, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = MemoryDriver.send

    async def sending(
        self: MemoryDriver, messages: Sequence[Outgoing], *, atomic: bool = False
    ) -> Sequence[Receipt]:
        if any(each.id == "m-2" for each in messages):
            raise OverflowError("int too big to convert")
        return await send(self, messages, atomic=atomic)

    monkeypatch.setattr(MemoryDriver, "send", sending)
    await add(qc, "m-1", "m-2", "m-3")
    async with qc.delayed.running():
        await clock.advance(1)
        assert await ids(qc) == ["m-1", "m-3"]
        (found,) = await qc.delayed.list()
        assert (found.id, found.failures) == ("m-2", 1)


async def test_stopping_waits_for_what_is_on_its_way(
    qc: QueueCraft, driver: FaultyDriver, clock: FakeClock
) -> None:
    await add(qc, "m-1")
    hang = driver.hang()
    await qc.delayed.start()
    await clock.advance(1)
    await hang.reached()
    stopping = asyncio.create_task(qc.delayed.stop())
    await clock.settle()
    assert not stopping.done()
    hang.release()
    await stopping
    assert (await ids(qc), await waiting(qc)) == (["m-1"], [])


async def test_stopping_does_not_wait_for_ever(
    qc: QueueCraft, driver: FaultyDriver, clock: FakeClock
) -> None:
    await add(qc, "m-1")
    hang = driver.hang(stored=False)
    await qc.delayed.start()
    await clock.advance(1)
    await hang.reached()
    await qc.delayed.stop(timeout=0.01)
    assert await waiting(qc) == ["m-1"]


async def test_the_service_can_be_stopped_while_the_broker_is_away(
    qc: QueueCraft, driver: FaultyDriver, clock: FakeClock
) -> None:
    await add(qc, "m-1")
    async with qc.delayed.running():
        driver.fail("send", ConnectionLost("cut"))
        driver.refuse(opens=1000)
        await clock.advance(5)
    assert await waiting(qc) == ["m-1"]


class Flaky(MemoryDelayedStore):
    """A store whose answers get lost."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = 0

    async def add(self, waiting: Waiting, limit: int) -> Added:
        added = await super().add(waiting, limit)
        if self.lost:
            self.lost -= 1
            raise ConnectionLost("the answer was lost")
        return added


async def test_an_addition_without_an_answer_can_be_repeated_under_its_id(
    qc: QueueCraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Flaky()
    store.lost = 1

    async def ready(*, patient: bool) -> DelayedStore:
        return store

    monkeypatch.setattr(qc.delayed._place, "ready", ready)
    with pytest.raises(PublishError, match="same message_id") as caught:
        await qc.delayed.add("order.placed", {}, delay=60)
    assert caught.value.outcome == "unknown"
    id = caught.value.message_id
    assert id is not None
    assert await qc.delayed.add("order.placed", {}, delay=60, message_id=id) == id
    assert await waiting(qc) == [id]


async def test_an_addition_does_not_wait_for_ever(clock: FakeClock) -> None:
    driver = FaultyDriver(MemoryDriver(clock))
    async with QueueCraft(drivers=[driver], clock=clock, publish_timeout=0.01) as qc:

        async def never(*_: Any, **__: Any) -> Any:
            await asyncio.Event().wait()

        qc.delayed._place.ready = never  # type: ignore[method-assign]
        with pytest.raises(PublishError, match=r"no answer within 0\.01 s") as caught:
            await qc.delayed.add("order.placed", {}, delay=60)
        assert caught.value.outcome == "rejected"


async def test_trouble_is_logged_once_until_it_is_over(
    qc: QueueCraft,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    away = True
    store = MemoryDelayedStore()

    async def ready(*, patient: bool) -> DelayedStore:
        if away:
            raise ConnectionLost("no answer")
        return store

    monkeypatch.setattr(qc.delayed._place, "ready", ready)
    async with qc.delayed.running():
        await clock.advance(30)
        told = [each for each in caplog.messages if each.startswith("moving delayed messages")]
        assert told == ["moving delayed messages failed, and is tried again: no answer"]
        away = False
        await clock.advance(5)
        away = True
        await clock.advance(30)
        assert caplog.messages.count(told[0]) == 2


async def test_a_store_that_is_away_when_a_cleanup_is_due_is_not_asked_without_a_pause(
    qc: QueueCraft, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    store = MemoryDelayedStore()

    async def ready(*, patient: bool) -> DelayedStore:
        nonlocal asked
        asked += 1
        if 295 < clock.monotonic() < 330:
            raise ConnectionLost("no answer")
        return store

    monkeypatch.setattr(qc.delayed._place, "ready", ready)
    async with qc.delayed.running():
        await clock.advance(296)
        before = asked
        await clock.advance(30)
        assert asked - before <= 2 * 31
        await clock.advance(10)
        assert (await qc.delayed.stats()).cleanup.runs == 1


async def test_settings_that_name_no_place_are_refused_with_what_to_do() -> None:
    from queuecraft import ConfigError

    qc = QueueCraft("amqp://localhost")
    for use in (qc.delayed.start(), qc.delayed.stats(), qc.delayed.list(), qc.delayed.cancel("x")):
        with pytest.raises(ConfigError, match=r"set delayed\.store to a redis:// URL or"):
            await use
    with pytest.raises(ConfigError, match=r"set delayed\.store"):
        await qc.delayed.add("order.placed", {}, delay=1)
    with pytest.raises(ConfigError, match=r"set delayed\.store"):
        await qc.delayed.cleanup()
    assert DelayedSettings().store is None
