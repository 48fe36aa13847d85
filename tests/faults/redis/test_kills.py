"""Processes that share a Redis and are killed at any moment lose nothing that was accepted."""

from __future__ import annotations

import random

from tests.faults.job import Job
from tests.faults.redis.modes import STREAMS_LATER
from tests.faults.scene import Scene
from tests.faults.test_frozen import begun_by, handled_by
from tests.faults.test_kills import kill_again_and_again

KILLS = 20
BATCH = 20


async def test_a_worker_killed_with_a_batch_in_its_hands_leaves_it_to_the_next(
    scene: Scene,
) -> None:
    lease = {**scene.broker.brisk, **scene.broker.short_lease}
    jobs = [Job(f"job-{n}", "waits") for n in range(BATCH)]
    await scene.declare()
    await scene.publish(*jobs)
    killed = scene.worker(constants=lease, prefetch=BATCH, concurrency=4)
    await scene.until(lambda: len(begun_by(scene, killed)) == 4, "it is at work")
    assert (await scene.queue()).in_flight == BATCH
    scene.kill(killed)

    heir = scene.worker(constants=lease, prefetch=BATCH, concurrency=BATCH)
    scene.open_gate(heir)
    await scene.quiet()
    await scene.stop(heir)
    account = await scene.check()

    assert handled_by(scene, heir) == {each.id for each in jobs}
    assert {line.redeliveries for line in account.by(heir.pid, "started")} == {1}
    order = [line.id for line in account.by(heir.pid, "started")]
    assert order == [each.id for each in jobs]


@STREAMS_LATER
async def test_a_publisher_killed_again_and_again_loses_nothing(
    scene: Scene, chance: random.Random
) -> None:
    await scene.declare()
    worker = scene.worker()
    living = [scene.publisher(batch=10, in_flight=4, pace=0.05)]
    await kill_again_and_again(scene, living, 8, chance)
    account = await scene.finish()

    assert account.by(worker.pid, "handled")
    assert len(account.deaths) == 8
    assert account.duplicates == []


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
