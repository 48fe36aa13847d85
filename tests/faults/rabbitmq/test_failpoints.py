"""A process that dies between two words with RabbitMQ takes nothing with it."""

from __future__ import annotations

from typing import Final

import pytest

from tests.faults.failpoints import failpoints
from tests.faults.job import QUEUE, Job
from tests.faults.rabbitmq.handlers import until
from tests.faults.scene import Scene
from tests.faults.test_failpoints import Death, burying, handling, publishing, redriving

KEPT: Final = "qc.undelivered.dlq"


async def homecoming(scene: Scene, point: str) -> None:
    """It dies while it sends on what was due for a queue that was missing."""
    await scene.declare()
    qc = await scene.qc
    jobs = [Job(f"late-{n}") for n in range(5)]
    await scene.publish(*jobs, delay=0.3)
    await qc.admin.delete(QUEUE)

    async def all_kept() -> bool:
        return (await qc.admin.inspect(KEPT)).ready == len(jobs)

    async def none_kept() -> bool:
        return (await qc.admin.inspect(KEPT)).ready == 0

    await until(all_kept)
    await scene.dies(scene.worker(environment={"QUEUECRAFT_FAILPOINT": point}))
    scene.worker()
    await scene.busy(scene.processes[-1])
    await until(none_kept)
    await scene.finish()


POINTS: Final[list[tuple[Death, str]]] = [
    (publishing, "publish.after_send"),
    (handling, "ack.before"),
    (handling, "ack.after"),
    (handling, "move.before"),
    (handling, "move.after_send"),
    (handling, "move.after_ack"),
    (burying, "again.after_send"),
    (redriving, "move.after_send"),
    (redriving, "redrive.after_move"),
    (redriving, "redrive.after_canary"),
    (homecoming, "latecomers.after_send"),
]

OTHERS: Final = [
    "middleware",
    "testing",
    "drivers/local",
    "drivers/redis",
    "drivers/kafka",
    "observers/journal",
    "pipeline",
    "runtime/delayed",
    "stores",
    "outbox",
]
"""Folders of the product that have no part in this."""

AGAIN: Final = {"latecomers.after_send", "ack.before", "move.before", "move.after_send"}
"""A job was run, and nobody was told: it is run again."""


SOON: Final = {"ack.before", "move.after_send", "publish.after_send"}
"""Where most would be lost; the others are for `make faults`, for the time they take."""


@pytest.mark.parametrize(
    ("death", "point"),
    [
        pytest.param(
            *each,
            id=f"{each[0].__name__}-{each[1]}",
            marks=[] if each[1] in SOON else [pytest.mark.faults],
        )
        for each in POINTS
    ],
)
async def test_a_process_dies_and_the_others_carry_on(
    death: Death, point: str, scene: Scene
) -> None:
    await death(scene, point)

    account = scene.account()
    assert account.count("died") == 1
    if point in AGAIN:
        assert account.duplicates


def test_no_failpoint_of_the_driver_is_forgotten() -> None:
    assert {point for _, point in POINTS} == failpoints(without=OTHERS)
