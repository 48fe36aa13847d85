"""A process that dies between two words with Redis takes nothing with it.

Most deaths are noticed only when a lease has ended: those who do the same die together.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import pytest

from tests.faults.account import Account
from tests.faults.child import change
from tests.faults.failpoints import failpoints
from tests.faults.job import TEMPERS, Job
from tests.faults.operator import PATTERN, SCRATCH, OperatorOptions
from tests.faults.process import Process
from tests.faults.redis.modes import STREAMS_LATER
from tests.faults.scene import Scene
from tests.faults.survivors import Survivors
from tests.faults.test_failpoints import Death, operating, publishing, redriving
from tests.proxy import Proxy

BACKLOG = 400

Deaths: TypeAlias = Callable[[Scene, Proxy, Sequence[str]], Awaitable[Mapping[str, Process]]]
"""Lets a process die at each of these places; who died where."""


async def handling(scene: Scene, proxy: Proxy, points: Sequence[str]) -> Mapping[str, Process]:
    await fill(scene)
    return await dead(scene, {point: doomed(scene, point) for point in points})


async def stopping(scene: Scene, proxy: Proxy, points: Sequence[str]) -> Mapping[str, Process]:
    """With jobs in its hands that have not begun."""
    await fill(scene)
    options: dict[str, Any] = {"stop_early": True, "concurrency": 1}
    return await dead(scene, {point: doomed(scene, point, **options) for point in points})


async def burying(scene: Scene, proxy: Proxy, points: Sequence[str]) -> Mapping[str, Process]:
    """It dies when it has seen to what another dead one has left."""
    await fill(scene)
    before = scene.worker(constants=lease(scene))
    await scene.busy(before)
    scene.kill(before)
    (point,) = points
    victim = doomed(scene, point, concurrency=1, prefetch=1)
    return await dead(scene, {point: victim})


async def reopening(scene: Scene, proxy: Proxy, points: Sequence[str]) -> Mapping[str, Process]:
    """It was cut off, and dies while it gives back what it held before."""
    await fill(scene)
    url = proxy.url(scene.broker.url)
    victims = {point: doomed(scene, point, url=url, pace=0.5) for point in points}
    await scene.busy(*victims.values())
    proxy.cut()
    return await dead(scene, victims)


async def deleting(scene: Scene, point: str) -> None:
    """A queue is deleted in one step: there is nothing left to be done again."""
    async with Survivors(scene) as survivors:
        qc = await scene.qc
        await qc.admin.declare(SCRATCH, PATTERN, dead_letters=False)
        await qc.publish_many("scratch.note", range(10))
        armed = {"QUEUECRAFT_FAILPOINT": point}
        await scene.dies(
            scene.start("operator", OperatorOptions, environment=armed, errand="delete")
        )
        topology = await qc.admin.topology()
        assert SCRATCH not in topology.queues
        assert not any(queue == SCRATCH for _, queue in topology.bindings)
        await survivors.rest()
        await scene.finish()


TOGETHER: Final[Mapping[Deaths, Sequence[str]]] = {
    handling: (
        "subscribe.before_commit",
        "subscribe.after_commit",
        "take.before_commit",
        "take.after_commit",
        "ack.before",
        "ack.before_commit",
        "ack.after_commit",
        "ack.after",
        "move.before",
        "move.before_commit",
        "move.after_commit",
        "move.after_ack",
        "renew.before_commit",
        "renew.after_commit",
        "reap.before_commit",
        "reap.after_commit",
    ),
    stopping: (
        "release.before_commit",
        "release.after_commit",
        "leave.before_commit",
        "leave.after_commit",
        "close.before_commit",
        "close.after_commit",
    ),
    burying: ("reap.after_burial",),
    reopening: ("open.before_commit", "open.after_commit"),
}

ALONE: Final[Mapping[Death, Sequence[str]]] = {
    publishing: (
        "prepare.before_commit",
        "prepare.after_commit",
        "declare.before_commit",
        "declare.after_commit",
        "send.before_commit",
        "send.after_commit",
        "publish.after_send",
    ),
    redriving: ("redrive.after_move", "redrive.after_canary"),
    operating: (
        "bind.before_commit",
        "bind.after_commit",
        "unbind.before_commit",
        "unbind.after_commit",
        "purge.before_commit",
        "purge.after_commit",
        "delete.before_commit",
    ),
    deleting: ("delete.after_commit",),
}
POINTS: Final = [(death, point) for death, points in ALONE.items() for point in points]

AGAIN: Final = {"ack.before", "ack.before_commit", "move.before", "move.before_commit"}
"""A job was run, and nobody was told: it is run again."""

DONE: Final = {"ack.after_commit", "ack.after", "move.after_commit", "move.after_ack"}
"""Redis was told of a job: that run is not repeated."""

NOT_PASSED: Final = {
    "move.after_send": "Redis moves a message in one step",
    "inspect.before_commit": "who looks holds nothing",
    "inspect.after_commit": "who looks holds nothing",
    "peek.before_commit": "who looks holds nothing",
    "peek.after_commit": "who looks holds nothing",
}

OTHERS: Final = [
    "middleware",
    "testing",
    "drivers/local",
    "drivers/rabbitmq",
    "drivers/kafka",
    "observers/journal",
    "pipeline",
    "runtime/delayed",
    "stores",
    "outbox",
]
"""Folders of the product that have no part in this."""


@pytest.mark.parametrize("deaths", TOGETHER, ids=[each.__name__ for each in TOGETHER])
async def test_processes_die_and_another_carries_on(
    deaths: Deaths, scene: Scene, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(scene.broker.brisk, monkeypatch.setattr)

    victims = await deaths(scene, proxy, TOGETHER[deaths])
    scene.worker(constants=lease(scene), concurrency=20, prefetch=50)
    account = await scene.finish()

    assert [*victims] == [*TOGETHER[deaths]]
    for point, victim in victims.items():
        repeated = ended_by(victim, account) & repetitions(account)
        if point in AGAIN:
            assert repeated, f"{point}: nothing was run again"
        if point in DONE:
            assert ended_by(victim, account) - repeated, f"{point}: all was run again"
        if point.startswith(("subscribe.", "take.")):
            assert not account.by(victim.pid, "started")
    print(account.summary())


SOON: Final = {point for _, point in POINTS if point.startswith(("ack.", "move."))}
"""Where most would be lost; the others are for `make faults`, for the time they take."""


@pytest.mark.parametrize(
    ("death", "point"),
    [
        pytest.param(*each, id=each[1], marks=[] if each[1] in SOON else [pytest.mark.faults])
        for each in POINTS
    ],
)
@STREAMS_LATER
async def test_a_process_dies_and_the_others_carry_on(
    death: Death, point: str, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(scene.broker.brisk, monkeypatch.setattr)

    await death(scene, point)

    account = scene.account()
    (victim,) = [line.victim for line in account.lines if line.what == "died"]
    published = {line.id for line in account.by(victim, "publishing")}
    if point == "send.before_commit":
        assert not published & account.ids("handled")
    if point in ("send.after_commit", "publish.after_send"):
        assert published & account.ids("handled")


def test_no_failpoint_of_the_driver_is_forgotten() -> None:
    together = {point for points in TOGETHER.values() for point in points}
    tested = together | {point for _, point in POINTS}
    assert tested | NOT_PASSED.keys() == failpoints(without=OTHERS)
    assert not tested & NOT_PASSED.keys()


# -- inside ------------------------------------------------------------------------------------


async def fill(scene: Scene) -> None:
    """Enough work for everybody."""
    await scene.declare()
    await scene.publish(
        *(Job(f"job-{n}", TEMPERS[n % len(TEMPERS)]) for n in range(BACKLOG)),
    )


def lease(scene: Scene) -> Mapping[str, float]:
    return {**scene.broker.brisk, **scene.broker.short_lease}


def doomed(scene: Scene, point: str, **options: Any) -> Process:
    armed = {"QUEUECRAFT_FAILPOINT": point}
    return scene.worker(environment=armed, constants=lease(scene), **options)


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
