"""A Kafka that is killed and started again has all that it answered for."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from tests.brokers.kafka import Kafka
from tests.faults.process import Process
from tests.faults.scene import Scene

pytestmark = [pytest.mark.faults, pytest.mark.timeout(150)]

TEN = 10
IN_TENS = {f"queuecraft.drivers.kafka.forwarding:{name}": TEN for name in ("BATCH", "AT_RISK")}
"""So many retries are moved on before that is committed, not two hundred."""


async def busy_again(scene: Scene) -> None:
    """So many more are handled, by whoever it is: one of the workers may have no partition."""
    enough = scene.account().count("handled") + 100
    await scene.until(lambda: scene.account().count("handled") >= enough, "they go on")


def has_rejoined(scene: Scene, process: Process, times: int) -> bool:
    return len(scene.account().by(process.pid, "rejoined")) >= times


async def test_a_broker_killed_under_load_and_started_again_has_lost_nothing(
    scene: Scene, kafka: Kafka
) -> None:
    await scene.declare()
    workers = [
        scene.worker(constants=IN_TENS),
        scene.worker(concurrency=2, prefetch=20, constants=IN_TENS),
    ]
    living = [scene.publisher(), *workers]
    for deaths in range(2):
        for each in living:  # or it is still away when the broker dies again, and notices one death
            await scene.until(partial(has_rejoined, scene, each, deaths), f"{each} is back")
        await busy_again(scene)
        await scene.look_away()
        for worker in workers:  # what it was just moving on comes on top of what it held
            scene.page.write("cut", victim=worker.pid, allowed=TEN)
        await asyncio.to_thread(kafka.kill)
        await asyncio.to_thread(kafka.start)
    await busy_again(scene)
    account = await scene.finish()

    assert all(len(account.by(each.pid, "cut")) >= 2 for each in living)
    print(account.summary())
