"""Size, status, history and growth; and alerts, once for each crossing."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from queuecraft import QueueCraft, QueueFull
from queuecraft.facts import DelayedAlert, DelayedRecovered
from queuecraft.runtime.delayed.growth import is_abnormal, rates
from queuecraft.testing import FakeClock
from tests.runtime.delayed.conftest import Make
from tests.runtime.delayed.looking import noted, waiting


async def add(qc: QueueCraft, count: int, delay: float = 100_000) -> None:
    for _ in range(count):
        await qc.delayed.add("order.placed", {}, delay=delay)


async def cancel(qc: QueueCraft, count: int) -> None:
    for id in (await waiting(qc))[:count]:
        assert await qc.delayed.cancel(id)


async def test_the_size_now_the_most_and_the_average_are_told(
    qc: QueueCraft, clock: FakeClock
) -> None:
    start = clock.now()
    sizes = []
    for more, fewer in ((10, 0), (20, 0), (0, 25)):
        await add(qc, more)
        await cancel(qc, fewer)
        stats = await qc.delayed.stats()
        sizes.append(stats.size)
        await clock.advance(60)
    stats = await qc.delayed.stats()
    assert sizes == [10, 30, 5]
    assert (stats.size, stats.max_size, stats.average_size) == (5, 30, (10 + 30 + 5 + 5) / 4)
    minute = datetime.fromtimestamp(start // 60 * 60, UTC)
    assert stats.history == tuple(
        (minute + timedelta(minutes=n), size) for n, size in enumerate([10, 30, 5, 5])
    )


async def test_the_oldest_that_is_due_is_told(qc: QueueCraft, clock: FakeClock) -> None:
    assert (await qc.delayed.stats()).oldest_due is None
    await qc.delayed.add("order.placed", {}, delay=60)
    await qc.delayed.add("order.placed", {}, delay=30)
    due = datetime.fromtimestamp(clock.now() + 30, UTC)
    assert (await qc.delayed.stats()).oldest_due == due


@pytest.mark.parametrize(
    ("size", "status"),
    [(0, "healthy"), (7, "healthy"), (8, "warning"), (9, "warning"), (10, "critical")],
)
async def test_the_status_is_a_word_for_how_full_it_is(make: Make, size: int, status: str) -> None:
    qc = await make(limit=10)
    await add(qc, size)
    assert (await qc.delayed.stats()).status == status


async def test_an_alert_is_raised_once_for_each_bound_that_is_crossed(make: Make) -> None:
    qc = await make(limit=100)
    alerts = noted(qc, DelayedAlert)
    await add(qc, 79)
    assert alerts == []
    await add(qc, 21)
    for _ in range(5):
        with pytest.raises(QueueFull):
            await add(qc, 1)
    assert [(each.about, each.status, each.size, each.limit) for each in alerts] == [
        ("size", "warning", 80, 100),
        ("size", "critical", 100, 100),
    ]


async def test_a_size_that_wavers_at_the_limit_is_one_alert(make: Make) -> None:
    qc = await make(limit=100)
    alerts = noted(qc, DelayedAlert)
    await add(qc, 100)
    for _ in range(10):
        await cancel(qc, 3)
        await qc.delayed.stats()
        await add(qc, 3)
    assert [each.status for each in alerts] == ["warning", "critical"]


async def test_what_is_over_is_told_and_the_next_crossing_is_an_alert_again(make: Make) -> None:
    qc = await make(limit=100)
    alerts, over = noted(qc, DelayedAlert), noted(qc, DelayedRecovered)
    await add(qc, 100)
    await cancel(qc, 30)
    await qc.delayed.stats()
    assert [(each.about, each.size) for each in over] == [("size", 70)]
    await add(qc, 30)
    assert [each.status for each in alerts] == ["warning", "critical"] * 2


@pytest.mark.parametrize("url", ["file"], indirect=True)
async def test_of_several_processes_that_notice_one_raises_the_alarm(make: Make) -> None:
    several = [await make(limit=10) for _ in range(3)]
    alerts = [noted(qc, DelayedAlert) for qc in several]
    await add(several[0], 8)
    for qc in several:
        await qc.delayed.stats()
    await add(several[1], 2)
    for qc in several:
        await qc.delayed.stats()
    told = [each.status for some in alerts for each in some]
    assert sorted(told) == ["critical", "warning"]


@pytest.mark.parametrize("url", ["file"], indirect=True)
async def test_processes_that_come_and_go_do_not_raise_it_again(make: Make) -> None:
    first = await make(limit=100)
    await add(first, 100)
    told: list[DelayedAlert] = []
    for _ in range(3):
        await cancel(first, 1)
        for _ in range(2):
            brief = await make(limit=100)
            told = noted(brief, DelayedAlert)
            with suppress(QueueFull):
                await add(brief, 1)
            assert told == []


@pytest.mark.parametrize("url", ["file"], indirect=True)
async def test_a_process_with_another_limit_does_not_call_the_alarm_off(make: Make) -> None:
    one, other = await make(limit=10), await make(limit=1000)
    alerts, over = noted(one, DelayedAlert), noted(other, DelayedRecovered)
    await add(one, 10)
    await other.delayed.stats()
    again = await make(limit=10)
    more = noted(again, DelayedAlert)
    await again.delayed.stats()
    assert (len(alerts), over, more) == (2, [], [])


@pytest.mark.parametrize("url", ["file"], indirect=True)
async def test_every_process_tells_the_same_story(make: Make, clock: FakeClock) -> None:
    one, other = await make(), await make()
    await add(one, 5)
    await one.delayed.stats()
    await clock.advance(60)
    await add(other, 10)
    await other.delayed.cleanup()
    assert await one.delayed.stats() == await other.delayed.stats()


async def test_growth_is_told_in_messages_a_minute(qc: QueueCraft, clock: FakeClock) -> None:
    assert (await qc.delayed.stats()).growth_per_minute == 0
    await clock.advance(60)
    await add(qc, 30)
    assert (await qc.delayed.stats()).growth_per_minute == 30
    await clock.advance(180)
    await cancel(qc, 15)
    assert (await qc.delayed.stats()).growth_per_minute == -5


async def test_unusual_growth_is_an_alert_once_and_falls_silent(
    make: Make, clock: FakeClock
) -> None:
    qc = await make(growth_floor=20, growth_deviations=6)
    alerts, over = noted(qc, DelayedAlert), noted(qc, DelayedRecovered)
    async with qc.delayed.running():
        for minute in range(10):
            await add(qc, 3 + minute % 2)
            await clock.advance(60)
        assert alerts == []
        await add(qc, 60)
        await clock.advance(30)
        assert (await qc.delayed.stats()).abnormal_growth
        assert [(each.about, each.status) for each in alerts] == [("growth", "warning")]
        assert (alerts[0].growth_per_minute or 0) > 50
        for minute in range(3):
            await clock.advance(60)
            await add(qc, 3 + minute % 2)
        assert not (await qc.delayed.stats()).abnormal_growth
    assert len(alerts) == 1
    assert [each.about for each in over] == ["growth"]


async def test_the_service_keeps_the_history_by_itself(qc: QueueCraft, clock: FakeClock) -> None:
    async with qc.delayed.running():
        await add(qc, 2)
        await clock.advance(600)
    history = (await qc.delayed.stats()).history
    assert len(history) == 11
    assert {size for _, size in history} == {2}


async def test_history_is_kept_for_some_hours_and_no_longer(
    qc: QueueCraft, clock: FakeClock
) -> None:
    for _ in range(300):
        await clock.advance(60)
        await qc.delayed.stats()
    assert len((await qc.delayed.stats()).history) == 240


@pytest.mark.parametrize(
    ("growth", "abnormal"),
    [
        ([], False),
        ([1000.0], False),  # nothing is usual yet
        ([0, 0, 0, 0, 0, 1000], True),
        ([0, 0, 0, 0, 0, 99], False),  # below the floor
        ([500, 480, 510, 490, 505, 560], False),  # busy, and always so
        ([500, 480, 510, 490, 505, 900], True),
        ([0, 5000, 0, 0, 5, 3, 4000], True),  # a burst before does not hide this one
        ([300, -300, 280, -310, 290, 310], False),  # it comes and goes
        ([0, 0, 0, 0, 0, -1000], False),  # it shrinks
    ],
)
def test_growth_is_compared_with_the_usual(growth: list[float], abnormal: bool) -> None:
    assert is_abnormal(growth, floor=100, deviations=6) is abnormal


def test_a_gap_in_the_history_is_spread_over_its_minutes() -> None:
    assert rates([(100, 0), (110, 50), (111, 40)]) == [5.0, -10.0]
