"""Sessions: one for each process that consumes, known to the others, and buried when it is dead."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from queuecraft.drivers.base import ConnectionLost, Move, Outgoing, Queue, Rejected
from queuecraft.drivers.local.sqlite import SqliteDriver, pulse
from queuecraft.drivers.local.sqlite import driver as driver_module
from queuecraft.drivers.local.sqlite.bell import Bell
from queuecraft.drivers.local.sqlite.pulse import Pulse
from queuecraft.testing import FakeClock
from tests.drivers.local.sqlite.conftest import Opener
from tests.drivers.local.sqlite.crash import crash
from tests.drivers.local.sqlite.eventually import eventually
from tests.drivers.local.sqlite.file import locked, messages, rows
from tests.drivers.local.sqlite.neighbour import neighbour

JOBS = Queue[Any]("jobs")
HOLDS_ONE = """
    await driver.open()
    subscription = await driver.subscribe(Queue("jobs"), prefetch=1)
    (delivery,) = await subscription.receive(1, 30)
    say("holds", delivery.sent.id, delivery.redeliveries)
    await asyncio.sleep(3600)
"""


@pytest.fixture
def quick_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "POLL", 0.01)


class SteppedClock(FakeClock):
    """One that can be set, as a machine's is after it has slept."""

    def step(self, seconds: float) -> None:
        self._start += seconds


def beat(driver: SqliteDriver) -> None:
    """As its thread does now and then."""
    assert driver._session is not None
    driver._session._renew()


def sockets(path: Path) -> set[str]:
    return {each.name for each in path.with_name(path.name + "-wake").iterdir()}


# -- joining -----------------------------------------------------------------------------------


async def test_consumers_that_start_together_while_the_file_is_busy_share_a_session(
    open_driver: Opener, path: Path
) -> None:
    driver = await open_driver()
    await driver.declare(JOBS)
    threads = threading.active_count()

    with locked(path):
        starting = [asyncio.ensure_future(driver.subscribe(JOBS, prefetch=1)) for _ in range(3)]
        await asyncio.sleep(0)
    await asyncio.gather(*starting)

    assert len(rows(path, "SELECT * FROM session")) == 1
    assert len(rows(path, "SELECT * FROM consumer JOIN session ON session = name")) == 3
    assert threading.active_count() == threads + 1


async def test_a_start_that_was_cancelled_leaves_the_next_one_in_order(
    open_driver: Opener, path: Path
) -> None:
    driver = await open_driver()
    await driver.declare(JOBS)
    with locked(path):
        starting = asyncio.ensure_future(driver.subscribe(JOBS, prefetch=1))
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    await driver.subscribe(JOBS, prefetch=1)

    ((name,),) = rows(path, "SELECT name FROM session")
    assert sockets(path) == {name}


@pytest.mark.usefixtures("quick_poll")
async def test_a_start_that_failed_at_the_graves_of_others_is_made_good_by_the_next(
    open_driver: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = await open_driver()
    await driver.declare(JOBS)
    await driver.send(messages("jobs", "m-1"))

    async def refused(*_: object) -> None:
        raise ConnectionLost("the file is busy", broker="local")

    with monkeypatch.context() as patch:
        patch.setattr(driver, "_bury", refused)
        await _leave_behind_a_dead_consumer(driver, open_driver)
        with pytest.raises(ConnectionLost):
            await driver.subscribe(JOBS, prefetch=1)
    subscription = await driver.subscribe(JOBS, prefetch=1)

    (delivery,) = await subscription.receive(1, 30)
    assert delivery.redeliveries == 1


async def _leave_behind_a_dead_consumer(driver: SqliteDriver, open_driver: Opener) -> None:
    dead = await open_driver()
    subscription = await dead.subscribe(JOBS, prefetch=1)
    assert await subscription.receive(1, 0)
    crash(dead)


async def test_opening_again_without_closing_starts_afresh(open_driver: Opener, path: Path) -> None:
    driver = await open_driver()
    await driver.declare(JOBS)
    await driver.send(messages("jobs", "m-1"))
    before = await driver.subscribe(JOBS, prefetch=1)
    taken = await before.receive(1, 0)
    files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()

    await driver.open()
    subscription = await driver.subscribe(JOBS, prefetch=1)

    (delivery,) = await subscription.receive(1, 0)
    assert delivery.redeliveries == 1
    assert await before.ack(taken) == taken
    assert len(os.listdir("/proc/self/fd")) == files
    assert threading.active_count() == threads
    assert len(rows(path, "SELECT * FROM session")) == len(sockets(path)) == 1


# -- dying -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_poll")
async def test_what_a_killed_process_held_is_there_for_the_next_to_start(
    open_driver: Opener, path: Path
) -> None:
    driver = await open_driver()
    await driver.declare(JOBS)
    await driver.send(messages("jobs", "m-1"))

    for deaths in range(2):
        with neighbour(path, HOLDS_ONE) as victim:
            assert await victim.says() == f"holds m-1 {deaths}"
            victim.kill()
    subscription = await driver.subscribe(JOBS, prefetch=1)

    (delivery,) = await subscription.receive(1, 0)
    assert delivery.redeliveries == 2
    ((name,),) = rows(path, "SELECT name FROM session")
    assert sockets(path) == {name}, "the sockets of the dead are cleared away"


@pytest.mark.usefixtures("quick_poll")
async def test_what_a_killed_process_held_reaches_those_that_wait(
    open_driver: Opener, path: Path
) -> None:
    driver = await open_driver()
    await driver.declare(JOBS)
    subscription = await driver.subscribe(JOBS, prefetch=1)
    await driver.send(messages("jobs", "m-1"))

    with neighbour(path, HOLDS_ONE) as victim:
        assert await victim.says() == "holds m-1 0"
        receiving = asyncio.ensure_future(subscription.receive(1, 60))
        await asyncio.sleep(0)
        assert [info.in_flight for info in await driver.inspect()] == [1]
        victim.kill()

    (delivery,) = await receiving
    assert delivery.redeliveries == 1
    assert await subscription.ack([delivery]) == []
    assert [(info.ready, info.in_flight) for info in await driver.inspect()] == [(0, 0)]


async def test_a_session_that_was_silent_for_too_long_has_lost_what_it_held(
    open_driver: Opener, path: Path
) -> None:
    clock = FakeClock()
    silent = await open_driver(clock=clock)
    await silent.declare(JOBS)
    await silent.send(messages("jobs", "m-1", "m-2"))
    subscription = await silent.subscribe(JOBS, prefetch=2)
    first, second = await subscription.receive(2, 0)

    await clock.advance(pulse.LEASE + 1)
    other = await open_driver(clock=clock)
    theirs = await other.subscribe(JOBS, prefetch=2)
    await clock.advance(2 * pulse.BEAT)
    assert [(info.ready, info.in_flight) for info in await other.inspect()] == [(0, 2)]
    await clock.advance(1)
    assert [(info.ready, info.in_flight) for info in await other.inspect()] == [(2, 0)]
    taken = await theirs.receive(2, 0)

    assert [(each.sent.id, each.redeliveries) for each in taken] == [("m-1", 1), ("m-2", 1)]
    assert await subscription.ack([first]) == [first]
    await subscription.release([second])
    (receipt,) = await subscription.move([Move(second, Outgoing(b"", "m-2", queue="jobs"))])
    assert isinstance(receipt, Rejected)
    assert [(info.ready, info.in_flight) for info in await other.inspect()] == [(0, 2)]
    with pytest.raises(ConnectionLost, match="others have taken over"):
        await subscription.receive(1, 0)
    with pytest.raises(ConnectionLost):  # a consumer nobody could ever bury
        await silent.subscribe(JOBS, prefetch=1)

    await silent.close()
    await silent.open()
    again = await silent.subscribe(JOBS, prefetch=2)
    assert await again.receive(2, 0) == []
    assert await theirs.ack(taken) == []
    assert len(rows(path, "SELECT * FROM session")) == 2


@pytest.mark.usefixtures("no_poll")
async def test_one_who_waits_learns_that_it_was_taken_for_dead(open_driver: Opener) -> None:
    clock = FakeClock()
    silent = await open_driver(clock=clock)
    await silent.declare(JOBS)
    subscription = await silent.subscribe(JOBS, prefetch=1)
    receiving = asyncio.ensure_future(subscription.receive(1, 3600))
    await clock.advance(pulse.LEASE + 1)

    other = await open_driver(clock=clock)
    await other.subscribe(JOBS, prefetch=1)
    await clock.advance(2 * pulse.BEAT + 1)
    await other.inspect()

    with pytest.raises(ConnectionLost, match="others have taken over"):
        await receiving


@pytest.mark.usefixtures("no_poll")
async def test_a_step_of_the_clock_costs_nobody_who_is_alive_what_it_holds(
    open_driver: Opener,
) -> None:
    clock = SteppedClock()
    ours, theirs = await open_driver(clock=clock), await open_driver(clock=clock)
    await ours.declare(JOBS)
    await ours.send(messages("jobs", "m-1"))
    subscription = await ours.subscribe(JOBS, prefetch=1)
    taken = await subscription.receive(1, 0)
    await theirs.subscribe(JOBS, prefetch=1)

    for _ in range(2):
        clock.step(pulse.LEASE + 1)
        assert [info.in_flight for info in await theirs.inspect()] == [1]
        await clock.advance(pulse.BEAT)
        beat(ours)
        await clock.advance(2 * pulse.BEAT)
        assert [info.in_flight for info in await theirs.inspect()] == [1]

    assert await subscription.ack(taken) == []


@pytest.mark.usefixtures("no_poll")
async def test_one_that_was_killed_before_a_step_of_the_clock_is_buried_at_once(
    open_driver: Opener,
) -> None:
    clock = SteppedClock()
    ours, theirs = await open_driver(clock=clock), await open_driver(clock=clock)
    await ours.declare(JOBS)
    await ours.send(messages("jobs", "m-1"))
    subscription = await ours.subscribe(JOBS, prefetch=1)
    await subscription.receive(1, 0)

    crash(ours)
    clock.step(pulse.LEASE + 1)

    assert [(info.ready, info.in_flight) for info in await theirs.inspect()] == [(1, 0)]


async def test_an_auto_delete_queue_goes_with_the_process_that_dies(open_driver: Opener) -> None:
    queue = Queue[Any]("replies", auto_delete=True, exclusive=True)
    dying, other = await open_driver(), await open_driver()
    await dying.declare(queue)
    await other.declare(JOBS)
    await dying.subscribe(queue, prefetch=1)

    crash(dying)
    await other.subscribe(JOBS, prefetch=1)

    assert [info.name for info in await other.inspect()] == ["jobs"]
    (receipt,) = await other.send(messages("replies", "m-1"))
    assert isinstance(receipt, Rejected)


# -- the heartbeat -----------------------------------------------------------------------------


async def test_the_heart_beats_while_the_loop_turns(
    open_driver: Opener, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "BEAT", 0.002)
    clock = FakeClock()
    driver = await open_driver(clock=clock)
    await driver.declare(JOBS)
    await driver.subscribe(JOBS, prefetch=1)
    ((before,),) = rows(path, "SELECT expires FROM session")

    await clock.advance(20)

    await eventually(lambda: rows(path, "SELECT expires FROM session") == [(before + 20,)])


def test_the_heart_stops_when_the_loop_has_stood_still_for_a_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pulse, "BEAT", 0.001)
    now, looked, renewed, ended = [0.0], threading.Semaphore(0), [0], threading.Event()

    def monotonic() -> float:
        looked.release()
        return now[0]

    def looks(count: int) -> None:
        """So many more: it may have looked often while nobody counted."""
        while looked.acquire(blocking=False):
            pass
        for _ in range(count):
            looked.acquire()

    def renew() -> None:
        renewed[0] += 1

    monkeypatch.setattr(pulse, "monotonic", monotonic)
    heart = Pulse(renew, ended.set)
    heart.start()
    looks(3)
    now[0] = pulse.LEASE
    looks(2)
    before = renewed[0]
    looks(3)
    assert before > 0
    assert renewed[0] == before

    heart.turned()
    looks(3)
    heart.stop()
    assert renewed[0] > before
    assert ended.is_set()


# -- without sockets ---------------------------------------------------------------------------


@pytest.mark.usefixtures("quick_poll")
async def test_a_session_without_a_socket_gets_its_messages_by_looking(
    open_driver: Opener, path: Path
) -> None:
    path.with_name(path.name + "-wake").write_text("a file where the folder should be")
    deaf, sender = await open_driver(), await open_driver()
    await sender.declare(JOBS)
    subscription = await deaf.subscribe(JOBS, prefetch=1)
    await sender.subscribe(JOBS, prefetch=1)
    receiving = asyncio.ensure_future(subscription.receive(1, 60))
    await asyncio.sleep(0)

    await sender.send(messages("jobs", "m-1"))

    assert [each.sent.id for each in await receiving] == ["m-1"]
    assert len(rows(path, "SELECT * FROM session")) == 2, "nobody takes a deaf one for dead"


async def test_a_neighbour_whose_socket_cannot_be_reached_for_now_is_not_taken_for_dead(
    open_driver: Opener, path: Path
) -> None:
    ours, theirs = await open_driver(), await open_driver()
    await ours.declare(JOBS)
    await ours.send(messages("jobs", "m-1"))
    subscription = await ours.subscribe(JOBS, prefetch=1)
    taken = await subscription.receive(1, 0)
    for _ in range(100):  # more than any buffer holds, and ours has not looked yet
        theirs._ring({0})  # the number of the first queue

    await theirs.subscribe(JOBS, prefetch=1)

    assert await subscription.ack(taken) == []


def test_only_the_owner_may_look_into_the_folder_of_sockets(path: Path) -> None:
    bell = Bell(path)
    bell.open()
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    bell.close()


# -- many --------------------------------------------------------------------------------------


async def test_two_hundred_openings_leave_no_file_thread_or_socket_open(
    open_driver: Opener, path: Path
) -> None:
    driver = await open_driver()
    await driver.declare(JOBS)
    await driver.subscribe(JOBS, prefetch=1)
    await driver.close()
    files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()

    for _ in range(200):
        await driver.open()
        await driver.subscribe(JOBS, prefetch=1)
        await driver.close()

    assert len(os.listdir("/proc/self/fd")) == files
    assert threading.active_count() == threads
    assert sockets(path) == set()
    assert rows(path, "SELECT * FROM session") == rows(path, "SELECT * FROM consumer") == []


@pytest.mark.usefixtures("no_poll")
async def test_many_drivers_on_one_file_get_each_message_once(open_driver: Opener) -> None:
    drivers = [await open_driver() for _ in range(12)]
    await drivers[0].declare(JOBS)
    got: Counter[str] = Counter()

    async def work(driver: SqliteDriver) -> None:
        subscription = await driver.subscribe(JOBS, prefetch=7)
        while got.total() < 600:
            taken = await subscription.receive(5, 0.05)
            got.update(each.sent.id for each in taken)
            assert await subscription.ack(taken) == []

    working = asyncio.gather(*map(work, drivers))
    for start in range(0, 600, 50):
        batch = [str(number) for number in range(start, start + 50)]
        await drivers[start % 12].send(messages("jobs", *batch))
        await asyncio.sleep(0)
    await working

    assert got == Counter({str(number): 1 for number in range(600)})
    assert [(info.ready, info.in_flight) for info in await drivers[0].inspect()] == [(0, 0)]
