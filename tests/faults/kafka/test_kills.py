"""Processes that share a Kafka and are killed at any moment lose nothing that was accepted."""

from __future__ import annotations

import random

import pytest

from tests.faults.scene import Scene
from tests.faults.test_kills import kill_again_and_again

pytestmark = [pytest.mark.faults, pytest.mark.timeout(150)]


async def test_a_publisher_killed_again_and_again_loses_nothing(
    scene: Scene, chance: random.Random
) -> None:
    await scene.declare()
    worker = scene.worker()
    living = [scene.publisher(batch=10, in_flight=4, pace=0.05)]
    await kill_again_and_again(scene, living, 6, chance)
    account = await scene.finish()

    assert account.by(worker.pid, "handled")
    assert len(account.deaths) == 6


async def test_publishers_and_workers_killed_at_random_lose_nothing(
    scene: Scene, chance: random.Random
) -> None:
    await scene.declare()
    living = [
        scene.publisher(),
        scene.publisher(batch=5, in_flight=2),
        scene.worker(),
        scene.worker(concurrency=2, prefetch=20),
    ]
    await kill_again_and_again(scene, living, 8, chance)
    account = await scene.finish()

    assert len(account.deaths) == 8
    print(account.summary())
