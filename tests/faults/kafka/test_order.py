"""Jobs of one key are handled in their order, whoever is killed, comes or goes."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

import pytest

from tests.faults.account import Account
from tests.faults.job import Job
from tests.faults.process import Process
from tests.faults.scene import Scene
from tests.faults.worker import WorkerOptions

pytestmark = [pytest.mark.faults, pytest.mark.timeout(150)]

KEYS = 8
JOBS = 60  # of each key


def overtaken(account: Account) -> list[str]:
    """Jobs that were begun though one before them, of the same key, had never been done."""
    done: dict[str, set[int]] = defaultdict(set)
    wrong: list[str] = []
    for line in account.lines:
        if line.what in ("started", "handled"):
            key, _, number = line.id.rpartition("-")
            if line.what == "handled":
                done[key].add(int(number))
            elif not done[key].issuperset(range(int(number))):
                wrong.append(f"{line.id} by {line.pid}")
    return wrong


def worker(scene: Scene) -> Process:
    return scene.start("ordered", WorkerOptions, concurrency=8, prefetch=40, pace=0.02)


async def publish(scene: Scene) -> None:
    """Some of which fail at first, and keep those behind them waiting."""
    for number in range(JOBS):
        for key in range(KEYS):
            temper = "fails once" if number % 20 == 7 else "ok"
            await scene.publish(Job(f"k{key}-{number}", temper), key=f"k{key}")
        await asyncio.sleep(0.05)


async def test_no_job_overtakes_another_of_its_key_when_workers_are_killed(
    scene: Scene, chance: random.Random
) -> None:
    await scene.declare()
    living = [worker(scene), worker(scene)]
    publishing = asyncio.create_task(publish(scene))
    for _ in range(4):
        await scene.busy(living[0])
        await asyncio.sleep(chance.uniform(0.3, 1.0))
        scene.kill(living.pop(0))
        living.append(worker(scene))
    await publishing
    await scene.quiet()
    last = living[-1].pid  # it may not listen to signals yet
    await scene.until(lambda: scene.account().by(last, "ready"), "it has come")
    await scene.stop(*living)

    account = await scene.check()
    assert overtaken(account) == []
    assert len(account.ids("handled")) == KEYS * JOBS
    print(account.summary())


async def test_no_job_overtakes_another_of_its_key_when_workers_come_and_go(scene: Scene) -> None:
    await scene.declare()
    steady = worker(scene)
    publishing = asyncio.create_task(publish(scene))
    for _ in range(4):
        guest = worker(scene)
        await scene.until(lambda: scene.account().by(guest.pid, "ready"), "it has come")  # noqa: B023
        await asyncio.sleep(1.0)
        await scene.stop(guest)
    await publishing
    await scene.quiet()
    await scene.stop(steady)

    account = await scene.check()
    assert overtaken(account) == []
    assert account.duplicates == []
    print(account.summary())
