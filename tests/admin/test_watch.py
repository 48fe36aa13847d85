"""Everything at a glance, for as many as look, and hardly a burden to the broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from math import inf
from typing import Any

import pytest

from queuecraft import ConfigError, QueueCraft
from queuecraft.admin import Watch
from queuecraft.admin import watch as module
from queuecraft.admin.overview import QueueRow
from queuecraft.drivers.base import Outgoing, QueueInfo
from queuecraft.model.errors import QueueError
from queuecraft.model.presence import Presence
from queuecraft.runtime.presence import NAME
from tests.admin.looks import process, worker
from tests.runtime.support import Stage, dead_letter, declared, staged


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with staged() as stage:
        yield stage


@pytest.fixture
async def watch(stage: Stage) -> AsyncIterator[Watch]:
    async with stage.qc.admin.watch() as watch:
        yield watch


async def say(stage: Stage, *processes: Presence) -> None:
    for each in processes:
        await stage.driver.announce(NAME + each.id, each.written(), ttl=3 * each.every)


async def put(stage: Stage, count: int, queue: str = "billing") -> None:
    await stage.driver.send(
        [Outgoing(b"{}", f"m-{n}", queue=queue, timestamp=1.0) for n in range(count)]
    )


def of(rows: tuple[QueueRow, ...], name: str = "billing") -> QueueRow:
    return next(row for row in rows if row.name == name)


# -- one answer for all ----------------------------------------------------------------------


async def test_a_look_tells_of_broker_and_queues(stage: Stage, watch: Watch) -> None:
    await stage.qc.admin.declare("billing", "order.*")
    await put(stage, 3)
    found = await watch.look()
    assert (found.broker, found.url, found.state) == ("local", "local://", "connected")
    assert [row.name for row in found.queues] == ["billing", "billing.dlq"]
    assert (of(found.queues).ready, of(found.queues).drain) == (3, inf)
    assert of(found.queues, "billing.dlq").holds_dead_letters
    assert found.workers == ()
    assert found.status == "critical"


async def test_queues_of_our_own_are_not_shown(stage: Stage, watch: Watch) -> None:
    await declared(stage.driver, "billing", "queuecraft.pauses", "qc.reply.a1")
    assert [row.name for row in (await watch.look()).queues] == ["billing"]


async def test_however_many_look_the_broker_is_asked_once_a_second(
    stage: Stage, watch: Watch
) -> None:
    first = await watch.look()
    before = stage.driver.calls["inspect"]
    looks = await asyncio.gather(*(watch.look() for _ in range(50)))
    assert all(look is first for look in looks)
    await stage.clock.advance(0.9)
    await watch.look()
    assert stage.driver.calls["inspect"] == before
    await stage.clock.advance(0.2)
    looks = await asyncio.gather(*(watch.look() for _ in range(50)))
    assert len({id(look) for look in looks}) == 1
    assert looks[0] is not first
    assert stage.driver.calls["inspect"] == before + 1


async def test_a_broker_that_takes_long_is_asked_a_tenth_of_the_time(
    stage: Stage, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    inspect = stage.driver.inspect

    async def slow(queues: Sequence[str] | None = None) -> Sequence[QueueInfo]:
        await stage.clock.advance(0.4)
        return await inspect(queues)

    monkeypatch.setattr(stage.driver, "inspect", slow)
    first = await watch.look()
    await stage.clock.advance(1.1)
    second = await watch.look()
    assert second is not first  # how long the first took says nothing about the next
    await stage.clock.advance(3.8)
    assert await watch.look() is second
    await stage.clock.advance(0.4)
    assert await watch.look() is not second


async def test_one_who_goes_away_takes_nobody_s_answer_along(stage: Stage, watch: Watch) -> None:
    one, two = (asyncio.create_task(watch.look()) for _ in range(2))
    await asyncio.sleep(0)
    one.cancel()
    assert (await two).state == "connected"


async def test_a_watch_that_is_not_open_says_so(stage: Stage) -> None:
    with pytest.raises(ConfigError, match="async with"):
        await stage.qc.admin.watch().look()


async def test_a_password_is_never_shown() -> None:
    qc = QueueCraft("redis://ada:s3cret@localhost:1/0?mode=list")
    async with qc.admin.watch() as watch:
        found = await watch.look()
    assert "s3cret" not in str(found)
    assert found.status == "critical"
    await qc.shutdown()


# -- rates -----------------------------------------------------------------------------------


async def test_rates_come_from_what_workers_tell(stage: Stage, watch: Watch) -> None:
    await declared(stage.driver, "billing")
    await put(stage, 100)
    at = stage.clock.now()
    await say(stage, process("a", at, worker(succeeded=1000, durations=(0, 0, 500))))
    first = await watch.look()
    assert of(first.queues).handled_per_second is None
    assert of(first.queues).p95 is None

    await stage.clock.advance(10)
    await put(stage, 50)
    busy = worker(succeeded=1090, failed=10, dead_lettered=10, durations=(0, 50, 500))
    await say(stage, process("a", at + 10, busy))
    found = await watch.look()
    row = of(found.queues)
    assert (row.handled_per_second, row.in_per_second, row.failed_per_second) == (10.0, 15.0, 1.0)
    assert (row.drain, row.p95) == (inf, 0.001)
    assert found.workers is not None
    (told,) = found.workers
    assert (told.state, told.handled, told.handled_per_second) == ("running", 1100, 10.0)
    now = stage.clock.now()
    assert found.numbers.in_per_second[-1] == (now, 15.0)
    assert found.numbers.handled_per_second[-1] == (now, 10.0)
    assert found.numbers.failure_ratio[-1] == (now, 0.1)
    assert found.numbers.oldest_age[0][1] is not None


async def test_rates_stay_between_two_signs_of_life(stage: Stage, watch: Watch) -> None:
    await declared(stage.driver, "billing")
    start = stage.clock.now()
    seen: list[float | None] = []
    for second in range(0, 40, 2):
        beat = second - second % 5
        await say(stage, process("a", start + beat, worker(succeeded=7 * beat)))
        seen.append(of((await watch.look()).queues).handled_per_second)
        await stage.clock.advance(2)
    assert set(seen[5:]) == {7.0}


async def test_only_so_many_points_are_kept(stage: Stage, watch: Watch) -> None:
    await declared(stage.driver, "billing")
    for _ in range(160):
        await watch.look()
        await stage.clock.advance(2)
    found = await watch.look()
    assert len(found.numbers.oldest_age) == 150


async def test_a_process_that_says_nothing_is_silent_then_gone(stage: Stage, watch: Watch) -> None:
    await say(stage, process("a", stage.clock.now(), worker()))
    states: list[Any] = []
    for _ in range(5):
        found = await watch.look()
        states.append([row.state for row in found.workers or ()])
        await stage.clock.advance(4)
    found = await watch.look()
    assert states == [["running"], ["running"], ["running"], ["silent"], []]
    assert [each.level for each in found.happenings] == ["error", "warning"]


async def test_a_process_with_a_wrong_clock_is_not_silent(stage: Stage, watch: Watch) -> None:
    for hours in (-5, 5):
        for second in range(0, 20, 5):
            at = stage.clock.now() + hours * 3600
            await say(stage, process(str(hours), at, worker(succeeded=second)))
            found = await watch.look()
            assert {row.state for row in found.workers or ()} <= {"running"}, (hours, second)
            await stage.clock.advance(5)
        await stage.clock.advance(20)


async def test_a_note_that_makes_no_sense_is_survived(stage: Stage, watch: Watch) -> None:
    odd = process("odd", 1e300, worker(), started_at=-1e300, every=-1.0)
    await stage.driver.announce(NAME + "odd", odd.written(), ttl=60)
    await stage.driver.announce(NAME + "bad", b"\xff\x00", ttl=60)
    for _ in range(3):
        assert (await watch.look()).state == "connected"
        await stage.clock.advance(2)


# -- pauses ----------------------------------------------------------------------------------


async def test_a_paused_queue_is_told_and_seldom_asked_about(stage: Stage, watch: Watch) -> None:
    await stage.qc.admin.declare("billing")
    await stage.qc.admin.pause("billing", reason="the bank is down", by="ada")
    await put(stage, 1)
    found = await watch.look()
    assert of(found.queues).paused == "paused by ada: the bank is down"
    assert (found.status, found.reasons) == (
        "warning",
        ("'billing' is paused, and has messages waiting.",),
    )
    before = stage.driver.calls["peek"]
    for _ in range(4):
        await stage.clock.advance(2)
        await watch.look()
    assert stage.driver.calls["peek"] == before
    await stage.qc.admin.resume("billing")
    await stage.clock.advance(2)
    found = await watch.look()
    assert of(found.queues).paused is None
    assert "'billing' is resumed." in [each.text for each in found.happenings]


# -- a broker that does not answer -----------------------------------------------------------


async def test_a_lost_connection_is_told_with_what_was_known_last(
    stage: Stage, watch: Watch
) -> None:
    await declared(stage.driver, "billing")
    await watch.look()
    stage.driver.refuse(opens=5)
    await stage.driver.drop()
    await stage.clock.advance(2)
    found = await watch.look()
    assert found.status == "critical"
    assert found.reasons[0].startswith("The broker does not answer: ")
    assert [row.name for row in found.queues] == ["billing"]
    assert found.state == "reconnecting"
    assert found.numbers.oldest_age[-1][1] is None
    await stage.clock.advance(600)
    found = await watch.look()
    assert (found.state, found.status) == ("connected", "healthy")
    assert found.happenings[0].text == "The broker answers again."


async def test_a_broker_that_hangs_is_not_waited_for_long(
    stage: Stage, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    await declared(stage.driver, "billing")
    await watch.look()
    monkeypatch.setattr(module, "ANSWER", 0.01)
    monkeypatch.setattr(module, "IMPATIENT", 0.001)
    gate, inspect, asked = asyncio.Event(), stage.driver.inspect, 0

    async def hang(queues: Any = None) -> Any:
        nonlocal asked
        asked += 1
        await gate.wait()
        return await inspect(queues)

    monkeypatch.setattr(stage.driver, "inspect", hang)
    for _ in range(3):
        await stage.clock.advance(2)
        found = await watch.look()
        assert (found.status, found.state) == ("critical", "not answering")
        assert [row.name for row in found.queues] == ["billing"]
    assert asked == 1  # one question is enough
    gate.set()
    await stage.clock.advance(2)
    await watch.look()
    await stage.clock.advance(2)
    assert (await watch.look()).state == "connected"


async def test_whatever_goes_wrong_is_told_and_not_raised(stage: Stage, watch: Watch) -> None:
    stage.driver.fail("inspect", QueueError("not allowed to look"))
    found = await watch.look()
    assert found.reasons == ("The broker does not answer: not allowed to look.",)


async def test_a_watch_that_is_closed_while_the_broker_hangs_ends(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(queues: Any = None) -> Any:
        await asyncio.Event().wait()

    async with stage.qc.admin.watch() as watch:
        monkeypatch.setattr(stage.driver, "inspect", hang)
        look = asyncio.create_task(watch.look())
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await look


# -- what failed alike -----------------------------------------------------------------------


async def test_the_first_look_tells_what_failed_alike(stage: Stage, watch: Watch) -> None:
    await stage.qc.admin.declare("billing", "order.*")
    await stage.driver.send([dead_letter(f"m-{n}") for n in range(5)])
    found = await watch.look()
    (group,) = found.groups
    assert (group.queue, group.count) == ("billing.dlq", 5)
    assert (found.looked_at, found.dead) == (5, 5)
    assert of(found.queues).dead == 5


@pytest.mark.parametrize(("ago", "status"), [(30.0, "warning"), (3_000.0, "healthy")])
async def test_whoever_begins_to_look_after_a_failure_is_told_of_it(
    stage: Stage, watch: Watch, ago: float, status: str
) -> None:
    await stage.qc.admin.declare("billing", "order.*")
    await stage.driver.send([dead_letter("m-1", failed_at=stage.clock.now() - ago)])
    assert (await watch.look()).status == status


async def test_queues_that_have_not_changed_are_not_looked_into(stage: Stage, watch: Watch) -> None:
    await stage.qc.admin.declare("billing", "order.*")
    await stage.driver.send([dead_letter("m-1")])
    await watch.look()
    peeks = stage.driver.calls["peek"]
    for _ in range(30):
        await stage.clock.advance(2)
        await watch.look()
    assert stage.driver.calls["peek"] == peeks


async def test_a_queue_that_changes_all_the_time_is_looked_into_now_and_then(
    stage: Stage, watch: Watch
) -> None:
    await stage.qc.admin.declare("billing", "order.*")
    for number in range(61):
        await stage.driver.send([dead_letter(f"m-{number}")])
        await watch.look()
        await stage.clock.advance(1)
    assert stage.driver.calls["peek"] <= 7
    assert (await watch.look()).looked_at > 40


async def test_without_groups_no_dead_letter_is_looked_at(stage: Stage, watch: Watch) -> None:
    await stage.qc.admin.declare("billing", "order.*")
    await stage.driver.send([dead_letter("m-1")])
    found = await watch.look(groups=False)
    assert (found.dead, found.groups) == (1, ())
    assert stage.driver.calls["peek"] == 0


async def test_dead_letters_that_are_gone_have_no_groups(stage: Stage, watch: Watch) -> None:
    await stage.qc.admin.declare("billing", "order.*")
    await stage.driver.send([dead_letter("m-1")])
    await watch.look()
    await stage.qc.dead_letters.purge("billing")
    await stage.clock.advance(2)
    found = await watch.look()
    assert (found.groups, found.looked_at, found.dead) == ((), 0, 0)
