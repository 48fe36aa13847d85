"""A worker killed in the middle of a batch has acknowledged nothing of it, and nothing is lost."""

from __future__ import annotations

import random

import pytest

from tests.faults.job import Job
from tests.faults.scene import Broker, Scene
from tests.faults.test_frozen import begun_by, handled_by
from tests.faults.test_kills import kill_again_and_again

BATCH = 20


async def leaves_its_batch_to_the_next(scene: Scene) -> None:
    """Kill a worker that has handled all of a batch but one message."""
    lease = {**scene.broker.brisk, **scene.broker.short_lease}
    all_at_once = {"concurrency": 1, "prefetch": BATCH, "batch_size": BATCH, "batch_wait": 20}
    jobs = [Job(f"job-{n}", "waits" if n == BATCH // 2 else "ok") for n in range(BATCH)]
    await scene.declare()
    await scene.publish(*jobs)
    killed = scene.worker(constants=lease, **all_at_once)
    await scene.until(lambda: len(handled_by(scene, killed)) == BATCH - 1, "all but one is done")
    assert len(begun_by(scene, killed)) == BATCH
    scene.kill(killed)

    heir = scene.worker(constants=lease, **all_at_once)
    scene.open_gate(heir)
    await scene.quiet()
    await scene.stop(heir)
    await scene.check()

    assert handled_by(scene, heir) == {each.id for each in jobs}


async def survives(scene: Scene, chance: random.Random, kills: int) -> None:
    """Kill workers that handle batches, and those that publish, again and again."""
    await scene.declare()
    living = [
        scene.publisher(),
        scene.publisher(batch=5, in_flight=2),
        scene.worker(batch_size=4),
        scene.worker(concurrency=2, prefetch=20, batch_size=10),
    ]
    await kill_again_and_again(scene, living, kills, chance)
    account = await scene.finish()

    assert len(account.deaths) == kills
    assert account.count("dead") > 0
    print(account.summary())


async def test_a_worker_killed_in_the_middle_of_a_batch_leaves_all_of_it_to_the_next(
    scene: Scene,
) -> None:
    await leaves_its_batch_to_the_next(scene)


async def test_workers_killed_at_random_with_batches_in_their_hands_lose_nothing(
    scene: Scene, chance: random.Random
) -> None:
    await survives(scene, chance, 20)


@pytest.mark.faults
@pytest.mark.timeout(150)
class TestOnKafka:
    """Who dies is missed within a second, and a retry is sent before its ack."""

    @pytest.fixture
    def broker(self, kafka_url: str) -> Broker:
        url = f"{kafka_url}&session_timeout=1&refresh=0.3&drain_timeout=2"
        return Broker(url, atomic_moves=False)

    async def test_a_worker_killed_in_the_middle_of_a_batch_leaves_all_of_it_to_the_next(
        self, scene: Scene
    ) -> None:
        await leaves_its_batch_to_the_next(scene)
