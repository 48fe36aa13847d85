"""Another process is in the middle of a transaction: ours wait, and the loop goes on turning."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from queuecraft.drivers.base import (
    ACCEPTED,
    Binding,
    ConnectionLost,
    Delivery,
    Exchange,
    Move,
    Outgoing,
    Queue,
    Subscription,
)
from queuecraft.drivers.local.sqlite import SqliteDriver, database
from queuecraft.drivers.local.sqlite import driver as driver_module
from queuecraft.testing import FakeClock
from tests.drivers.local.sqlite.conftest import Opener
from tests.drivers.local.sqlite.eventually import eventually
from tests.drivers.local.sqlite.file import locked, messages, rows
from tests.drivers.local.sqlite.neighbour import neighbour

JOBS = Queue[Any]("jobs")
Call: TypeAlias = Callable[["Scene"], Awaitable[object]]


class Scene:
    """A queue with three messages, two of them in hand."""

    def __init__(self, driver: SqliteDriver, subscription: Subscription) -> None:
        self.driver = driver
        self.subscription = subscription
        self.held: list[Delivery] = []

    async def state(self) -> tuple[int | None, int | None, list[str]]:
        (info,) = await self.driver.inspect(["jobs"])
        peeked = await self.driver.peek("jobs", 9)
        return info.ready, info.in_flight, [each.sent.id for each in peeked]


@pytest.fixture
async def scene(open_driver: Opener) -> Scene:
    driver = await open_driver()
    await driver.declare(JOBS)
    await driver.send(messages("jobs", "a", "b", "c"))
    scene = Scene(driver, await driver.subscribe(JOBS, prefetch=3))
    scene.held += await scene.subscription.receive(2, 0)
    return scene


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "PATIENCE", 0.02)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "POLL", 0.01)


async def given_up(call: Coroutine[Any, Any, None]) -> None:
    """Begin a call, and cancel it while it waits for the file."""
    calling = asyncio.ensure_future(call)
    for _ in range(3):
        await asyncio.sleep(0.001)
    calling.cancel()
    await asyncio.wait([calling])
    assert calling.cancelled()


def move(scene: Scene) -> Awaitable[object]:
    to = Outgoing(b"", "moved", queue="jobs")
    return scene.subscription.move([Move(each, to) for each in scene.held])


BIND = [Binding(Exchange("events"), "a")]
CALLS: dict[str, Call] = {
    "send": lambda scene: scene.driver.send(messages("jobs", "d")),
    "receive": lambda scene: scene.subscription.receive(1, 0),
    "ack": lambda scene: scene.subscription.ack(scene.held),
    "ack some": lambda scene: scene.subscription.ack(scene.held[1:]),
    "release": lambda scene: scene.subscription.release(scene.held),
    "move": move,
    "purge": lambda scene: scene.driver.purge("jobs"),
    "delete": lambda scene: scene.driver.delete("jobs"),
    "declare": lambda scene: scene.driver.declare(Queue("more")),
    "bind": lambda scene: scene.driver.bind("jobs", BIND),
    "subscribe": lambda scene: scene.driver.subscribe(JOBS, prefetch=1),
}
calls = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@calls
async def test_a_call_waits_its_turn_while_the_loop_goes_on(
    scene: Scene, path: Path, call: Call
) -> None:
    with locked(path):
        calling = asyncio.ensure_future(call(scene))
        for _ in range(10):  # the lock is given up by this very loop
            await asyncio.sleep(0.001)
        assert not calling.done()

    await calling


@calls
@pytest.mark.usefixtures("impatient")
async def test_a_call_that_waited_in_vain_says_why_and_has_changed_nothing(
    scene: Scene, path: Path, call: Call
) -> None:
    before = await scene.state()

    with locked(path), pytest.raises(ConnectionLost, match=r"another process has held .*; end its"):
        await call(scene)

    assert await scene.state() == before
    assert await scene.subscription.ack(scene.held) == []
    assert [each.sent.id for each in await scene.subscription.receive(9, 0)] == ["c"]


@calls
async def test_a_call_that_is_cancelled_while_it_waits_has_changed_nothing(
    scene: Scene, path: Path, call: Call
) -> None:
    before = await scene.state()
    consumers = rows(path, "SELECT * FROM consumer")

    with locked(path):
        calling = asyncio.ensure_future(call(scene))
        for _ in range(3):
            await asyncio.sleep(0.001)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling

    assert await scene.state() == before
    assert rows(path, "SELECT * FROM consumer") == consumers
    assert [info.name for info in await scene.driver.inspect()] == ["jobs"]
    assert await scene.subscription.ack(scene.held) == []
    assert [each.sent.id for each in await scene.subscription.receive(9, 0)] == ["c"]


@pytest.mark.usefixtures("no_poll")
async def test_a_wake_up_of_a_receive_that_is_cancelled_in_the_queue_for_the_file_is_passed_on(
    open_driver: Opener, path: Path
) -> None:
    driver = await open_driver()
    await driver.declare(JOBS)
    subscriptions = [await driver.subscribe(JOBS, prefetch=1) for _ in range(2)]
    first, second = [asyncio.ensure_future(each.receive(1, 60)) for each in subscriptions]
    for _ in range(5):
        await asyncio.sleep(0)

    await driver.send(messages("jobs", "a"))
    with locked(path):
        for _ in range(5):
            await asyncio.sleep(0.001)
        first.cancel()
        await asyncio.wait([first])
    assert first.cancelled()

    assert [each.sent.id for each in await asyncio.wait_for(second, 10)] == ["a"]


async def test_closing_ends_what_is_still_waiting_for_the_file(
    open_driver: Opener, path: Path
) -> None:
    driver = await open_driver()
    await driver.declare(JOBS)

    with locked(path):
        sending = asyncio.ensure_future(driver.send(messages("jobs", "a")))
        await asyncio.sleep(0.005)
        await driver.close()
        with pytest.raises(ConnectionLost, match="closed"):
            await sending

    await driver.open()
    assert await driver.peek("jobs", 9) == []


@pytest.mark.usefixtures("impatient")
async def test_closing_while_the_file_is_held_gives_back_what_was_in_hand_all_the_same(
    scene: Scene, path: Path
) -> None:
    with locked(path):
        await scene.driver.close()

    await scene.driver.open()
    subscription = await scene.driver.subscribe(JOBS, prefetch=9)
    taken = await subscription.receive(9, 0)
    assert [(e.sent.id, e.redeliveries) for e in taken] == [("a", 1), ("b", 1), ("c", 0)]
    assert len(rows(path, "SELECT * FROM session")) == 1


async def test_a_close_that_is_cancelled_while_it_waits_keeps_nothing_from_the_others(
    scene: Scene, open_driver: Opener, path: Path
) -> None:
    with locked(path):
        closing = asyncio.ensure_future(scene.driver.close())
        await asyncio.sleep(0.005)
        closing.cancel()
        await asyncio.wait([closing])

    other = await open_driver()
    subscription = await other.subscribe(JOBS, prefetch=9)
    taken = await subscription.receive(9, 0)
    assert [(e.sent.id, e.redeliveries) for e in taken] == [("a", 1), ("b", 1), ("c", 0)]


@pytest.mark.usefixtures("impatient")
async def test_a_subscription_that_could_not_leave_can_be_closed_again(
    scene: Scene, path: Path
) -> None:
    with locked(path), pytest.raises(ConnectionLost):
        await scene.subscription.close()

    await scene.subscription.close()
    await scene.subscription.close()

    assert await scene.state() == (3, 0, ["a", "b", "c"])
    assert [each.redeliveries for each in await scene.driver.peek("jobs", 9)] == [1, 1, 0]


async def test_a_subscription_whose_closing_was_cancelled_can_be_closed_again(
    scene: Scene, path: Path
) -> None:
    with locked(path):
        closing = asyncio.ensure_future(scene.subscription.close())
        await asyncio.sleep(0.005)
        closing.cancel()
        await asyncio.wait([closing])
    with pytest.raises(ConnectionLost):
        await scene.subscription.receive(1, 0)

    await scene.subscription.close()

    assert await scene.state() == (3, 0, ["a", "b", "c"])


async def test_one_that_could_not_leave_is_gone_for_the_others_once_the_file_is_free(
    open_driver: Opener, path: Path
) -> None:
    ordered = Queue[Any]("jobs", single_active=True)
    driver, other = await open_driver(), await open_driver()
    await driver.declare(ordered)
    await driver.send(messages("jobs", "a", "b"))
    first = await driver.subscribe(ordered, prefetch=1)
    next_one = await other.subscribe(ordered, prefetch=9)
    assert await first.receive(1, 0)
    with locked(path):
        await given_up(first.close())

    taken = await next_one.receive(9, 60)

    assert [(each.sent.id, each.redeliveries) for each in taken] == [("a", 1), ("b", 0)]


@pytest.mark.usefixtures("impatient", "often")
async def test_one_that_cannot_leave_tries_again_however_often_that_fails(
    scene: Scene, path: Path
) -> None:
    with locked(path):
        await given_up(scene.subscription.close())
        tried = scene.driver._errands
        for _ in range(2):
            await eventually(lambda: tried)
            await eventually(lambda: not tried)
            assert rows(path, "SELECT * FROM consumer")

    await eventually(lambda: not rows(path, "SELECT * FROM consumer"))
    assert await scene.state() == (3, 0, ["a", "b", "c"])
    assert [each.redeliveries for each in await scene.driver.peek("jobs", 9)] == [1, 1, 0]


@pytest.mark.usefixtures("no_poll")
async def test_one_that_could_not_leave_gives_way_to_the_next_of_its_own_process(
    open_driver: Opener, path: Path
) -> None:
    alone = Queue[Any]("jobs", exclusive=True, auto_delete=True)
    driver = await open_driver()
    await driver.declare(alone)
    await driver.send(messages("jobs", "a"))
    first = await driver.subscribe(alone, prefetch=1)
    assert await first.receive(1, 0)
    with locked(path):
        await given_up(first.close())

    await driver.declare(alone)
    taken = await (await driver.subscribe(alone, prefetch=1)).receive(1, 0)

    assert [(each.sent.id, each.redeliveries) for each in taken] == [("a", 1)]
    await first.close()
    assert [info.name for info in await driver.inspect()] == ["jobs"]
    assert len(rows(path, "SELECT * FROM consumer")) == 1


async def test_a_delayed_message_is_brought_forward_once_the_file_is_free(
    open_driver: Opener, path: Path
) -> None:
    clock = FakeClock()
    driver = await open_driver(clock=clock)
    await driver.declare(JOBS)
    await driver.send(messages("jobs", "later", due_at=clock.now() + 5))
    subscription = await driver.subscribe(JOBS, prefetch=1)
    receiving = asyncio.ensure_future(subscription.receive(1, 60))

    with locked(path):
        await clock.advance(5)
    assert [each.sent.id for each in await receiving] == ["later"]


async def test_closing_right_when_something_is_due_leaves_nothing_behind(
    open_driver: Opener,
) -> None:
    clock = FakeClock(turns=0)
    driver = await open_driver(clock=clock)
    await driver.declare(JOBS)
    await driver.send(messages("jobs", "later", due_at=clock.now() + 5))
    await driver.subscribe(JOBS, prefetch=1)

    await clock.advance(5)  # its errand has begun, and had no turn yet
    assert driver._errands
    await driver.close()
    for _ in range(3):
        await asyncio.sleep(0)

    assert not driver._errands
    await driver.open()
    assert [each.sent.id for each in await driver.peek("jobs", 1)] == ["later"]


async def test_two_processes_that_write_all_the_time_get_everything_across(
    open_driver: Opener, path: Path
) -> None:
    driver = await open_driver()
    await driver.declare(JOBS)
    subscription = await driver.subscribe(JOBS, prefetch=50)
    program = """
        await driver.open()
        for number in range(150):
            (receipt,) = await driver.send([Outgoing(b"", f"{sys.argv[1]} {number}", queue="jobs")])
        say("done")
    """
    got: Counter[str] = Counter()

    with neighbour(path, program) as one, neighbour(path, program) as two:
        while got.total() < 300:
            taken = await subscription.receive(20, 30)
            got.update(each.sent.id for each in taken)
            assert await subscription.ack(taken) == []
        assert (await one.says(), await two.says()) == ("done", "done")

    assert set(got.values()) == {2}, "each number once from each of them"
    assert [(info.ready, info.in_flight) for info in await driver.inspect()] == [(0, 0)]
    assert await driver.send(messages("jobs", "last")) == [ACCEPTED]
