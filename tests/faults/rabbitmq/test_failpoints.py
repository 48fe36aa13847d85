"""A process that dies between two words with RabbitMQ takes nothing with it."""

from __future__ import annotations

from typing import Final

import pytest

from tests.faults.failpoints import failpoints
from tests.faults.scene import Scene
from tests.faults.test_failpoints import Death, burying, handling, publishing, redriving

pytestmark = pytest.mark.faults  # minutes in all; `make faults` runs it

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
]

OTHERS: Final = ["testing", "drivers/local", "drivers/redis", "drivers/kafka"]
"""Folders of the product that have no part in this."""

AGAIN: Final = {"ack.before", "move.before", "move.after_send"}
"""A job was run, and nobody was told: it is run again."""


@pytest.mark.parametrize(
    ("death", "point"), POINTS, ids=[f"{death.__name__}-{point}" for death, point in POINTS]
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
