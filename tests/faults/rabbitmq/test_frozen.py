"""A worker that stands still for longer than its heartbeat has lost what it held, and finds out."""

from __future__ import annotations

import signal

from tests.faults.job import Job
from tests.faults.scene import Scene
from tests.faults.test_frozen import begun_by, handled_by


async def test_late_acks_of_a_frozen_worker_change_nothing_and_it_joins_again(
    scene: Scene,
) -> None:
    ids = {f"job-{n}" for n in range(4)}
    await scene.declare()
    await scene.publish(*(Job(each, "waits") for each in sorted(ids)))

    frozen = scene.worker(heartbeat=1, prefetch=4)
    await scene.until(lambda: begun_by(scene, frozen) == ids, "the first worker has them all")
    scene.freeze(frozen)
    other = scene.worker(heartbeat=1, prefetch=4)
    await scene.until(lambda: begun_by(scene, other) == ids, "the second worker has them all")

    # It wakes up, its handlers return, and it acks what another has in its hands by now.
    scene.open_gate(frozen)
    frozen.send(signal.SIGCONT)
    await scene.until(lambda: handled_by(scene, frozen) == ids, "the first one is done, too late")
    await scene.until(
        lambda: scene.account().by(frozen.pid, "rejoined"), "the first one knows what it has lost"
    )
    assert not handled_by(scene, other)

    scene.open_gate(other)
    await scene.until(lambda: handled_by(scene, other) == ids, "the second one is done as well")
    assert all(line.redeliveries == 1 for line in scene.account().by(other.pid, "started"))
    await scene.stop(other)

    await scene.publish(*(Job(f"later-{n}") for n in range(3)))
    await scene.quiet()
    assert {"later-0", "later-1", "later-2"} <= handled_by(scene, frozen)
    await scene.stop(frozen)
    await scene.check()
