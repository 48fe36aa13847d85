"""The same for minutes: more processes, more kills, and deaths at places nobody thinks of."""

from __future__ import annotations

import asyncio
import random
import signal
import time

import pytest

from tests.faults.process import Process
from tests.faults.scene import Scene
from tests.faults.test_failpoints import DEATHS, handling, publishing

pytestmark = [pytest.mark.faults, pytest.mark.timeout(400)]

MINUTES = 2
ENOUGH = 100  # deaths at a failpoint, however long a slow machine takes for them


def company(scene: Scene) -> list[Process]:
    """Four that publish and four that handle, no two of them alike."""
    return [
        scene.publisher(pace=0.03),
        scene.publisher(pace=0.1, batch=10, in_flight=2),
        scene.publisher(pace=0.05, in_flight=20),
        scene.publisher(pace=0.01, in_flight=1),
        scene.worker(),
        scene.worker(concurrency=1, prefetch=1),
        scene.worker(concurrency=2, prefetch=40),
        scene.worker(concurrency=20, prefetch=20),
    ]


async def test_hundreds_of_kills_and_short_freezes_in_two_minutes_lose_nothing(
    scene: Scene, chance: random.Random
) -> None:
    await scene.declare()
    living = company(scene)
    until = time.monotonic() + MINUTES * 60
    kills = 0
    while time.monotonic() < until:
        await scene.until(lambda: any(map(scene.is_busy, living)), "one of them is at work")
        await asyncio.sleep(chance.uniform(0, 0.15))
        victim = chance.choice([each for each in living if scene.is_busy(each)])
        if chance.random() < 0.1:  # perhaps in the middle of a transaction, with all others waiting
            victim.send(signal.SIGSTOP)
            await asyncio.sleep(chance.uniform(0, 0.5))
            victim.send(signal.SIGCONT)
        else:
            scene.kill(victim)
            living[living.index(victim)] = scene.again(victim)
            kills += 1
    await scene.busy(*living)
    account = await scene.finish()

    print(account.summary())
    assert kills > 300
    assert len(account.deaths) == kills


async def test_processes_that_die_at_any_failpoint_after_any_number_of_passes_lose_nothing(
    scene: Scene, chance: random.Random
) -> None:
    points = [(point, scene.publisher) for point in DEATHS[publishing]]
    points += [(point, scene.worker) for point in DEATHS[handling]]
    lease = {**scene.broker.brisk, **scene.broker.short_lease}
    await scene.declare()
    lasting = [scene.publisher(pace=0.02), scene.worker()]
    doomed: list[Process] = []
    until = time.monotonic() + MINUTES * 30
    died = 0
    while doomed or died <= ENOUGH or time.monotonic() < until:
        if len(doomed) < 6 and (died <= ENOUGH or time.monotonic() < until):
            point, start = chance.choice(points)
            passes = int(chance.expovariate(1 / 20))
            doomed.append(start(doom=point, passes=passes, constants=lease))
            continue
        await asyncio.sleep(chance.uniform(0, 0.2))
        oldest = doomed.pop(0)
        if oldest.status is None:  # some places are passed but once, and it waits in vain
            scene.kill(oldest)
        else:
            await scene.dies(oldest)
            died += 1
    await scene.busy(*lasting)
    account = await scene.finish()

    print(account.summary())
    assert account.count("died") > ENOUGH
