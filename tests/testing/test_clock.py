"""Time that a test moves."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from functools import partial

import pytest

from queuecraft.drivers.base import Outgoing, Queue
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.testing import FakeClock


async def test_time_stands_still_until_it_is_moved() -> None:
    clock = FakeClock(start=1000.0)
    await asyncio.sleep(0.001)
    assert (clock.now(), clock.monotonic()) == (1000.0, 0.0)
    await clock.advance(2.5)
    assert (clock.now(), clock.monotonic()) == (1002.5, 2.5)


async def test_a_kept_callable_follows_the_clock() -> None:
    clock = FakeClock(start=1000.0)
    now, monotonic = clock.now, clock.monotonic
    await clock.advance(5)
    assert (now(), monotonic()) == (1005.0, 5.0)


async def test_timers_fire_in_order_each_at_its_own_time() -> None:
    clock = FakeClock(start=0.0)
    fired: list[tuple[str, float]] = []

    def note(name: str) -> None:
        fired.append((name, clock.now()))

    for name, after in (("late", 30.0), ("early", 10.0), ("also early", 10.0)):
        clock.call_later(after, partial(note, name))
    await clock.advance(9)
    assert fired == []
    await clock.advance(100)
    assert fired == [("early", 10.0), ("also early", 10.0), ("late", 30.0)]
    assert clock.now() == 109.0


async def test_what_a_timer_starts_happens_before_the_next_one_fires() -> None:
    clock = FakeClock(start=0.0)
    seen: list[str] = []

    async def work() -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        seen.append("worked")

    tasks: list[asyncio.Task[None]] = []
    clock.call_later(1, lambda: tasks.append(asyncio.create_task(work())))
    clock.call_later(2, lambda: seen.append("second"))
    await clock.advance(2)
    assert seen == ["worked", "second"]


async def test_a_timer_set_by_a_timer_fires_within_the_same_advance() -> None:
    clock = FakeClock(start=0.0)
    ticks: list[float] = []

    def tick() -> None:
        ticks.append(clock.now())
        clock.call_later(1, tick)

    clock.call_later(1, tick)
    await clock.advance(4)
    assert ticks == [1.0, 2.0, 3.0, 4.0]
    assert clock.pending == (1.0,)


async def test_a_timer_for_now_needs_no_advance() -> None:
    clock = FakeClock()
    fired: list[str] = []
    clock.call_later(0, lambda: fired.append("now"))
    clock.call_later(-5, lambda: fired.append("past"))
    clock.call_later(0, lambda: fired.append("never")).cancel()
    await clock.settle()
    assert fired == ["now", "past"]


async def test_a_cancelled_timer_does_not_fire() -> None:
    clock = FakeClock()
    fired: list[str] = []
    timer = clock.call_later(1, lambda: fired.append("no"))
    timer.cancel()
    timer.cancel()
    assert clock.pending == ()
    await clock.advance(2)
    assert fired == []


async def test_what_goes_wrong_in_a_timer_reaches_the_test() -> None:
    clock = FakeClock()
    clock.call_later(1, lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        await clock.advance(2)


async def test_sleepers_wake_when_their_time_has_come() -> None:
    clock = FakeClock(start=0.0)
    woken: list[float] = []

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(clock.now())

    async with asyncio.TaskGroup() as group:
        for seconds in (3.0, 0.0, 1.0, -1.0):
            group.create_task(sleeper(seconds))
        await clock.settle()
        assert woken == [0.0, 0.0]
        await clock.advance(10)
    assert woken == [0.0, 0.0, 1.0, 3.0]


async def test_a_cancelled_sleeper_leaves_no_timer() -> None:
    clock = FakeClock()
    sleeping = asyncio.create_task(clock.sleep(60))
    await clock.settle()
    assert len(clock.pending) == 1
    sleeping.cancel()
    await asyncio.wait([sleeping])
    assert len(clock.pending) == 0


async def test_the_clock_can_be_set_forward_but_not_back() -> None:
    clock = FakeClock()
    fired: list[str] = []
    clock.call_later(1, lambda: fired.append("on the way"))
    await clock.set(datetime(2030, 1, 1, tzinfo=UTC))
    assert datetime.fromtimestamp(clock.now(), UTC) == datetime(2030, 1, 1, tzinfo=UTC)
    assert fired == ["on the way"]
    with pytest.raises(ValueError, match="backwards"):
        await clock.set(0.0)
    with pytest.raises(ValueError, match="time zone"):
        await clock.set(datetime(2031, 1, 1))  # noqa: DTZ001
    with pytest.raises(ValueError, match="backwards"):
        await clock.advance(-1)


@pytest.mark.parametrize("delay", [0.1, 0.3, 1 / 3, 30.1, 12345.6789])
@pytest.mark.parametrize("before", [0.0, 0.7, 1 / 3])
async def test_a_delay_is_over_when_exactly_that_much_time_has_passed(
    delay: float, before: float
) -> None:
    clock = FakeClock()
    driver = MemoryDriver(clock)
    await driver.open()
    await driver.declare(Queue("billing"))
    await clock.advance(before)
    due = clock.now() + delay
    await driver.send([Outgoing(b"", "m-1", queue="billing", due_at=due)])
    await clock.advance(delay * 0.99)
    assert await driver.peek("billing", 1) == []
    await clock.advance(delay * 0.01)
    assert len(await driver.peek("billing", 1)) == 1
    assert clock.now() >= due
    await driver.close()
