"""A Kafka that is killed and started again has all that it answered for."""

from __future__ import annotations

import asyncio

import pytest

from tests.brokers.kafka import Kafka
from tests.faults.scene import Scene

pytestmark = [pytest.mark.faults, pytest.mark.timeout(150)]


async def busy_again(scene: Scene) -> None:
    """So many more are handled, by whoever it is: one of the workers may have no partition."""
    enough = scene.account().count("handled") + 100
    await scene.until(lambda: scene.account().count("handled") >= enough, "they go on")


async def test_a_broker_killed_under_load_and_started_again_has_lost_nothing(
    scene: Scene, kafka: Kafka
) -> None:
    await scene.declare()
    living = [scene.publisher(), scene.worker(), scene.worker(concurrency=2, prefetch=20)]
    for _ in range(2):
        await busy_again(scene)
        await scene.look_away()
        await asyncio.to_thread(kafka.kill)
        await asyncio.to_thread(kafka.start)
    await busy_again(scene)
    account = await scene.finish()

    assert account.count("cut") >= 2 * len(living)
    print(account.summary())
