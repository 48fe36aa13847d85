"""Jobs of one key are handled in their order, whoever is killed, comes or goes."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Mapping
from typing import Any

import pytest

from tests.faults import ordered
from tests.faults.account import Account
from tests.faults.job import QUEUE, Hands, Job
from tests.faults.kafka.test_order import JOBS, KEYS, overtaken, publish
from tests.faults.process import Process
from tests.faults.rabbitmq.test_crash_loop import QUEUES
from tests.faults.scene import Broker, Scene
from tests.faults.worker import WorkerOptions

pytestmark = [pytest.mark.faults, pytest.mark.timeout(150)]

LIMIT = 4  # redeliveries; from the third on a job is handled alone


@pytest.fixture(params=[*QUEUES.values()], ids=[*QUEUES])
def broker(request: pytest.FixtureRequest, broker: Broker) -> Broker:
    arguments: Mapping[str, str] = request.param
    return dataclasses.replace(broker, arguments=arguments)


def worker(scene: Scene, **options: Any) -> Process:
    usual: dict[str, Any] = {"concurrency": 8, "prefetch": 40, "pace": 0.02}
    return scene.start("ordered", WorkerOptions, **{**usual, **options})


async def declare(scene: Scene) -> None:
    hands = Hands(scene.folder, scene.page)
    await ordered.worker_of(await scene.qc, hands, arguments=scene.broker.arguments).declare()


async def test_no_job_overtakes_another_of_its_key_when_workers_are_killed(
    scene: Scene, chance: random.Random
) -> None:
    await declare(scene)
    living = [worker(scene), worker(scene)]  # one of them stands by
    publishing = asyncio.create_task(publish(scene))
    for _ in range(4):
        await scene.until(lambda: any(map(scene.is_busy, living)), "one is at work")
        await asyncio.sleep(chance.uniform(0.3, 1.0))
        victim = next(each for each in living if scene.is_busy(each))
        living.remove(victim)
        scene.kill(victim)
        living.append(worker(scene))
    await publishing
    await scene.quiet()
    await until_ready(scene, *living)
    await scene.stop(*living)

    account = await scene.check()
    assert overtaken(account) == []
    assert len(account.ids("handled")) == KEYS * JOBS
    print(account.summary())


async def test_no_job_overtakes_another_of_its_key_when_workers_come_and_go(scene: Scene) -> None:
    await declare(scene)
    present = worker(scene)
    for turn in range(4):
        await publish_some(scene, range(15 * turn, 15 * turn + 5))
        await scene.busy(present)
        follower = worker(scene)
        await until_ready(scene, follower)
        await publish_some(scene, range(15 * turn + 5, 15 * turn + 15))  # more than one may hold
        await scene.stop(present)
        present = follower
    await scene.quiet()
    await scene.stop(present)

    account = await scene.check()
    assert overtaken(account) == []
    assert account.duplicates == []
    assert len(account.ids("handled")) == KEYS * JOBS
    print(account.summary())


async def test_a_job_that_kills_its_worker_is_set_aside_and_those_around_it_keep_their_order(
    scene: Scene,
) -> None:
    await declare(scene)
    for number in range(12):
        for key in "abc":
            killer = (key, number) == ("b", 3)
            name = "killer" if killer else f"{key}-{number - (key == 'b' and number > 3)}"
            await scene.publish(Job(name, "kills" if killer else "ok"), key=key)
    deaths = 0
    while True:
        one = worker(scene, concurrency=4, prefetch=10, max_redeliveries=LIMIT)
        await scene.until(lambda: one.status is not None or is_done(scene), "it dies or is done")  # noqa: B023
        if one.status is None:
            break
        await scene.dies(one)
        deaths += 1
    await scene.quiet()
    await scene.stop(one)

    assert deaths >= LIMIT + 1
    assert await scene.note_dead_letters() == 1
    account = scene.account()
    (dead,) = [line for line in account.lines if line.what == "dead"]
    assert (dead.id, dead.reason) == ("killer", "crash-loop")
    assert account.ids("handled") == account.ids("published") - {"killer"}
    others = Account([line for line in account.lines if line.id != "killer"])
    assert overtaken(others) == []
    await (await scene.qc).dead_letters.purge(QUEUE)


async def publish_some(scene: Scene, numbers: range) -> None:
    for number in numbers:
        for key in range(KEYS):
            await scene.publish(Job(f"k{key}-{number}"), key=f"k{key}")


async def until_ready(scene: Scene, *processes: Process) -> None:
    for each in processes:
        await scene.until(lambda: scene.account().by(each.pid, "ready"), "it has come")  # noqa: B023


def is_done(scene: Scene) -> bool:
    account = scene.account()
    return account.ids("handled") >= account.ids("published") - {"killer"}
