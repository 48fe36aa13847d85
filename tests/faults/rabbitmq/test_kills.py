"""Processes that share a RabbitMQ and are killed at any moment lose nothing that was accepted."""

from __future__ import annotations

import random

from tests.faults.scene import Scene
from tests.faults.test_kills import kill_again_and_again

KILLS = 20


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

    await kill_again_and_again(scene, living, KILLS, chance)
    account = await scene.finish()

    assert len(account.deaths) == KILLS
    assert account.count("dead") > 0
    print(account.summary(), f"{account.copies} copies")
