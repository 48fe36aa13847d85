"""A process that dies between two words with Kafka takes nothing with it.

A death is noticed when a session has ended: those who do the same die together.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import pytest

from tests.faults.account import Account
from tests.faults.failpoints import failpoints
from tests.faults.job import TEMPERS, Job
from tests.faults.process import Process
from tests.faults.scene import Scene
from tests.faults.test_failpoints import Death, first_on_the_scene, publishing, redriving

BACKLOG = 400

Deaths: TypeAlias = Callable[[Scene, Sequence[str]], Awaitable[Mapping[str, Process]]]
"""Lets a process die at each of these places; who died where."""


async def handling(scene: Scene, points: Sequence[str]) -> Mapping[str, Process]:
    await fill(scene)
    return await dead(scene, {point: doomed(scene, point) for point in points})


async def committing(scene: Scene, points: Sequence[str]) -> Mapping[str, Process]:
    """Alone: where others come and go, the first commit may be of nothing."""
    return await handling(scene, points)


async def about_to_commit(scene: Scene, points: Sequence[str]) -> Mapping[str, Process]:
    """Alone as well, and not after another: all it runs would have been run before."""
    return await handling(scene, points)


async def announcing(scene: Scene, points: Sequence[str]) -> Mapping[str, Process]:
    """It dies with records in its hands of which nobody has begun."""
    return await handling(scene, points)


async def forwarding(scene: Scene, points: Sequence[str]) -> Mapping[str, Process]:
    """It dies with retries in its hands whose time has come."""
    await fill(scene)
    victims: dict[str, Process] = {}
    for point in points:
        victims[point] = doomed(scene, point, prefetch=100)
        await scene.dies(victims[point])
    return victims


async def rebalancing(scene: Scene, points: Sequence[str]) -> Mapping[str, Process]:
    """It dies when it has to give partitions to one who comes. All it holds is run to its end by
    then, and may have to be run again. Nothing fails: who moves on retries is in a group of his
    own, and those that he has moved on and not committed would come on top."""
    await scene.declare()
    for key in range(8):  # there are some in partitions that go, and in others that stay
        jobs = (Job(f"job-{key}-{n}") for n in range(BACKLOG // 8))
        await scene.publish(*jobs, key=f"key-{key}")
    victims: dict[str, Process] = {}
    for point in points:
        victims[point] = doomed(scene, point, pace=0.2)
        await scene.busy(victims[point])
        guest = scene.worker(pace=0.2)
        await scene.dies(victims[point])
        await scene.stop(guest)
    return victims


async def stopping(scene: Scene, points: Sequence[str]) -> Mapping[str, Process]:
    """With jobs in its hands that have not begun."""
    await fill(scene)
    victims: dict[str, Process] = {}
    for point in points:
        victims[point] = doomed(scene, point, stop_early=True, concurrency=1)
        await scene.dies(victims[point])
    return victims


TOGETHER: Final[Mapping[Deaths, Sequence[str]]] = {
    handling: (
        "ack.before",
        "ack.after",
        "move.before",
        "move.after_send",
        "move.after_ack",
    ),
    about_to_commit: ("commit.before",),
    committing: ("commit.after",),
    announcing: ("announce.before", "announce.after"),
    forwarding: ("forward.before_send", "forward.after_send"),
    rebalancing: ("revoke.before_commit", "revoke.after_commit"),
    stopping: ("revoke.before_commit", "revoke.after_commit"),
}

ALONE: Final[list[tuple[Death, str]]] = [
    (first_on_the_scene, "declare.before_commit"),
    (first_on_the_scene, "declare.after_commit"),
    (publishing, "send.before_commit"),
    (publishing, "send.after_commit"),
    (publishing, "publish.after_send"),
    (redriving, "move.after_send"),
    (redriving, "redrive.after_move"),
    (redriving, "redrive.after_canary"),
]

ELSEWHERE: Final = {"forward.before_keep", "forward.after_keep"}
"""Their kills are in tests/kafka/test_forwarding.py: the jobs here are never refused."""

AGAIN: Final = {"ack.before", "commit.before", "move.before", "move.after_send"}
"""A job was run, and Kafka was not told: it is run again."""

OTHERS: Final = [
    "middleware",
    "testing",
    "drivers/local",
    "drivers/rabbitmq",
    "drivers/redis",
    "observers/journal",
    "pipeline",
    "runtime/delayed",
    "stores",
    "outbox",
]
"""Folders of the product that have no part in this."""


@pytest.mark.faults
@pytest.mark.timeout(150)
@pytest.mark.parametrize("deaths", TOGETHER, ids=[each.__name__ for each in TOGETHER])
async def test_processes_die_and_another_carries_on(deaths: Deaths, scene: Scene) -> None:
    victims = await deaths(scene, TOGETHER[deaths])
    scene.worker(concurrency=20, prefetch=50)
    account = await scene.finish()

    assert [*victims] == [*TOGETHER[deaths]]
    for point, victim in victims.items():
        repeated = ended_by(victim, account) & repetitions(account)
        if point in AGAIN:
            assert repeated, f"{point}: nothing was run again"
        if point == "commit.after":
            assert ended_by(victim, account) - repeated, f"{point}: all was run again"
    print(account.summary(), f"{account.copies} copies")


@pytest.mark.faults
@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    ("death", "point"), ALONE, ids=[f"{death.__name__}-{point}" for death, point in ALONE]
)
async def test_a_process_dies_and_the_others_carry_on(
    death: Death, point: str, scene: Scene
) -> None:
    await death(scene, point)

    account = scene.account()
    (victim,) = [line.victim for line in account.lines if line.what == "died"]
    published = {line.id for line in account.by(victim, "publishing")}
    if point == "send.before_commit":
        assert not published & account.ids("handled")
    if point in ("send.after_commit", "publish.after_send"):
        assert published & account.ids("handled")


@pytest.mark.faults
@pytest.mark.timeout(150)
@pytest.mark.parametrize("point", ["forward.before_send", "forward.after_send"])
async def test_what_waits_for_its_time_is_neither_early_nor_lost_with_who_moves_it_on(
    scene: Scene, point: str
) -> None:
    await scene.declare()
    due = time.monotonic_ns() + 2_000_000_000
    await scene.publish(*(Job(f"late-{n}") for n in range(30)), delay=2.0)
    later = time.monotonic_ns() + 2_000_000_000 - due  # that long it took to publish them
    await scene.dies(doomed(scene, point, prefetch=100))
    scene.worker()
    # An event that waits is in no queue yet: the broker cannot say that some are left.
    await scene.until(lambda: len(scene.account().ids("handled")) == 30, "all are handled")
    account = await scene.finish()

    first = min(line.at for line in account.lines if line.what == "started")
    assert first >= due, f"early by {(due - first) / 1e6:g} ms, of {later / 1e6:g} ms publishing"
    assert len(account.ids("handled")) == 30


def test_no_failpoint_of_the_driver_is_forgotten() -> None:
    together = {point for points in TOGETHER.values() for point in points}
    alone = {point for _, point in ALONE}
    assert together | alone | ELSEWHERE == failpoints(without=OTHERS)


# -- inside ------------------------------------------------------------------------------------


async def fill(scene: Scene) -> None:
    """Enough work for everybody."""
    await scene.declare()
    await scene.publish(
        *(Job(f"job-{n}", TEMPERS[n % len(TEMPERS)]) for n in range(BACKLOG)),
    )


def doomed(scene: Scene, point: str, **options: Any) -> Process:
    return scene.worker(environment={"QUEUECRAFT_FAILPOINT": point}, **options)


async def dead(scene: Scene, victims: Mapping[str, Process]) -> Mapping[str, Process]:
    for victim in victims.values():
        await scene.dies(victim)
    return victims


def ended_by(process: Process, account: Account) -> set[tuple[str, int]]:
    """The runs that a process has brought to an end, each by its job and attempt."""
    return {(line.id, line.attempt) for line in account.by(process.pid, "handled", "failed")}


def repetitions(account: Account) -> set[tuple[str, int]]:
    """Those that were begun more than once."""
    return {(line.id, line.attempt) for line in account.duplicates}
