"""Processes that share a broker in peace get every message once, and never the same at a time."""

from __future__ import annotations

from tests.faults.scene import Scene

JOBS = 400


async def test_two_publishers_and_two_workers_share_a_queue_without_loss_or_duplicate(
    scene: Scene,
) -> None:
    await scene.declare()
    workers = [scene.worker(), scene.worker(concurrency=8, prefetch=30)]
    publishers = [
        scene.publisher(jobs=JOBS, in_flight=8, pace=0.002),
        scene.publisher(jobs=JOBS, in_flight=2, batch=20, pace=0.002),
    ]
    await scene.ended(*publishers)
    account = await scene.finish()

    assert account.count("published") == 2 * JOBS
    assert account.losses == []
    assert account.duplicates == []
    assert all(account.by(each.pid, "handled") for each in workers)
    for process in scene.processes:
        output = process.output
        assert "locked" not in output
        assert "Busy" not in output
    print(account.summary())
