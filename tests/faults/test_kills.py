"""Processes that share a broker and are killed at any moment lose nothing that was accepted."""

from __future__ import annotations

import asyncio
import random

from tests.faults.process import Process
from tests.faults.scene import Scene

KILLS = 30


async def kill_again_and_again(
    scene: Scene, living: list[Process], kills: int, chance: random.Random
) -> None:
    """Kill one that is at work at a random moment, start another in its place, and so on."""
    for _ in range(kills):
        await scene.until(lambda: any(map(scene.is_busy, living)), "one of them is at work")
        await asyncio.sleep(chance.uniform(0, 0.1))
        victim = chance.choice([each for each in living if scene.is_busy(each)])
        scene.kill(victim)
        living[living.index(victim)] = scene.again(victim)
    await scene.busy(*living)


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
    print(account.summary())
