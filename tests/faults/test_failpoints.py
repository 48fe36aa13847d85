"""A process that dies at the worst instant of anything it does takes nothing with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias, get_args

import pytest

from queuecraft import QueueCraft
from tests.faults.account import Account
from tests.faults.child import Options, change
from tests.faults.failpoints import failpoints
from tests.faults.job import QUEUE
from tests.faults.operator import PATTERN, SCRATCH, Errand, OperatorOptions, do
from tests.faults.process import Process
from tests.faults.publisher import PublisherOptions
from tests.faults.scene import Scene
from tests.faults.survivors import Survivors
from tests.faults.worker import WorkerOptions

Death: TypeAlias = Callable[[Scene, str], Awaitable[None]]
"""Lets a process die at a place, among others that live on."""

OTHERS: Final = [
    "middleware",
    "testing",
    "drivers/rabbitmq",
    "drivers/redis",
    "drivers/kafka",
    "observers/journal",
    "pipeline",
    "runtime/delayed",
    "stores",
    "outbox",
]
"""Folders of the product that have no part in this."""

NOT_PASSED: Final = {"move.after_send": "the broker moves a message in one step"}


async def first_on_the_scene(scene: Scene, point: str) -> None:
    """Before anybody else has been there."""
    await scene.dies(_publisher(scene, point))
    async with Survivors(scene) as survivors:
        await _end(scene, survivors)


async def publishing(scene: Scene, point: str) -> None:
    async with Survivors(scene) as survivors:
        await scene.dies(_publisher(scene, point))
        await _end(scene, survivors)


async def handling(scene: Scene, point: str) -> None:
    async with Survivors(scene) as survivors:
        await scene.dies(_worker(scene, point))
        await _end(scene, survivors)


async def stopping(scene: Scene, point: str) -> None:
    """With jobs in its hands that have not begun."""
    async with Survivors(scene) as survivors:
        await scene.dies(_worker(scene, point, stop_early=True, concurrency=1))
        await _end(scene, survivors)


async def burying(scene: Scene, point: str) -> None:
    """It dies while it sees to what another dead one has left."""
    async with Survivors(scene, idle=True) as survivors:
        before = scene.worker()
        await scene.busy(before)
        await survivors.rest()  # whoever looks at the queue would see to it first
        scene.kill(before)
        await scene.dies(_worker(scene, point))
        await survivors.work()
        await _end(scene, survivors)


async def redriving(scene: Scene, point: str) -> None:
    async with Survivors(scene) as survivors:
        await survivors.rest()
        await scene.quiet()
        await scene.note_dead_letters()
        scene.mend()
        errand: Errand = "canary" if point == "redrive.after_canary" else "redrive"
        await scene.dies(_operator(scene, point, errand))
        await scene.quiet()
        await scene.declare()
        await (await scene.qc).dead_letters.redrive(QUEUE)
        await scene.quiet()
        await scene.check()


async def operating(scene: Scene, point: str) -> None:
    """On a queue beside the one that the others work with."""
    errand: Errand = next(each for each in get_args(Errand) if point.startswith(f"{each}."))
    async with Survivors(scene) as survivors:
        qc = await scene.qc
        bound = () if errand == "bind" else (PATTERN,)
        await qc.admin.declare(SCRATCH, *bound, dead_letters=False)
        if bound:
            await qc.publish_many("scratch.note", range(10))

        await scene.dies(_operator(scene, point, errand))

        assert await _has_begun(qc, errand) is (point == f"{errand}.after_commit")
        await do(errand, qc)  # again, by another, to the end
        assert await _has_begun(qc, errand)
        if errand != "delete":
            await qc.admin.delete(SCRATCH)
        assert SCRATCH not in (await qc.admin.topology()).queues
        await _end(scene, survivors)


DEATHS: Final[Mapping[Death, tuple[str, ...]]] = {
    first_on_the_scene: (
        "migrate.before_commit",
        "migrate.after_commit",
        "restart.before_commit",
        "restart.after_commit",
    ),
    publishing: (
        "declare.before_commit",
        "declare.after_commit",
        "prepare.before_commit",
        "prepare.after_commit",
        "send.before_commit",
        "send.after_commit",
        "publish.after_send",
    ),
    handling: (
        "join.before_commit",
        "join.after_commit",
        "subscribe.before_commit",
        "subscribe.after_commit",
        "claim.before_commit",
        "claim.after_commit",
        "ack.before",
        "ack.before_commit",
        "ack.after_commit",
        "ack.after",
        "move.before",
        "move.before_commit",
        "move.after_commit",
        "move.after_ack",
        "due.before_commit",
        "due.after_commit",
        "renew.before_commit",
        "renew.after_commit",
        "announce.before_commit",
        "announce.after_commit",
    ),
    stopping: (
        "release.before_commit",
        "release.after_commit",
        "leave.before_commit",
        "leave.after_commit",
    ),
    burying: ("bury.before_commit", "bury.after_commit"),
    redriving: ("redrive.after_move", "redrive.after_canary"),
    operating: (
        "bind.before_commit",
        "bind.after_commit",
        "unbind.before_commit",
        "unbind.after_commit",
        "purge.before_commit",
        "purge.after_commit",
        "delete.before_commit",
        "delete.after_commit",
    ),
}

AGAIN: Final = {"ack.before", "ack.before_commit", "move.before", "move.before_commit"}
"""A job was run, and nobody was told: it is run again."""

POINTS: Final = [(death, point) for death, points in DEATHS.items() for point in points]


@pytest.mark.parametrize(("death", "point"), POINTS, ids=[point for _, point in POINTS])
async def test_a_process_dies_and_the_others_carry_on(
    death: Death, point: str, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(scene.broker.brisk, monkeypatch.setattr)

    await death(scene, point)

    account = scene.account()
    (victim,) = [line.victim for line in account.lines if line.what == "died"]
    if point in AGAIN:
        assert account.duplicates
    if point == "send.before_commit":
        assert not _published_by(victim, account) & account.ids("handled")
    if point in ("send.after_commit", "publish.after_send"):
        assert _published_by(victim, account) & account.ids("handled")


def test_no_failpoint_of_the_product_is_forgotten() -> None:
    tested = {point for _, point in POINTS}
    assert tested | NOT_PASSED.keys() == failpoints(without=OTHERS)
    assert not tested & NOT_PASSED.keys()


# -- inside ------------------------------------------------------------------------------------


def _publisher(scene: Scene, point: str) -> Process:
    return _victim(scene, "publisher", PublisherOptions, point)


def _worker(scene: Scene, point: str, **options: Any) -> Process:
    return _victim(scene, "worker", WorkerOptions, point, **options)


def _operator(scene: Scene, point: str, errand: Errand) -> Process:
    return _victim(scene, "operator", OperatorOptions, point, errand=errand)


def _victim(scene: Scene, program: str, kind: type[Options], point: str, **options: Any) -> Process:
    constants = {**scene.broker.brisk, **scene.broker.short_lease}
    armed = {"QUEUECRAFT_FAILPOINT": point}
    return scene.start(program, kind, environment=armed, constants=constants, **options)


async def _end(scene: Scene, survivors: Survivors) -> None:
    """All is handled in the end, and it adds up."""
    await survivors.rest()
    await scene.finish()


async def _has_begun(qc: QueueCraft, errand: Errand) -> bool:
    """Whether the first step of it is there to be seen; most have but one."""
    bindings = (await qc.admin.topology()).bindings
    bound = any(queue == SCRATCH for _, queue in bindings)
    match errand:
        case "bind":
            return bound
        case "unbind" | "delete":  # nothing more is let into a queue that is to go
            return not bound
        case _:
            return (await qc.admin.inspect(SCRATCH)).ready == 0


def _published_by(victim: int, account: Account) -> set[str]:
    return {line.id for line in account.by(victim, "publishing")}
