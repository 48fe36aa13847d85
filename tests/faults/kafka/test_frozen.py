"""A worker that stands still for longer than its session has lost what it held, and finds out: what
it commits then is refused, and changes nothing."""

from __future__ import annotations

import signal

import pytest

from tests.faults.job import Job
from tests.faults.scene import Scene
from tests.faults.test_frozen import begun_by, handled_by

pytestmark = [pytest.mark.faults, pytest.mark.timeout(150)]


async def test_late_commits_of_a_frozen_worker_change_nothing_and_it_joins_again(
    scene: Scene,
) -> None:
    ids = {f"job-{n}" for n in range(4)}
    await scene.declare()
    await scene.publish(*(Job(each, "waits") for each in sorted(ids)))

    frozen = scene.worker(prefetch=4)
    await scene.until(lambda: begun_by(scene, frozen) == ids, "the first worker has them all")
    scene.freeze(frozen)
    other = scene.worker(prefetch=4)
    await scene.until(lambda: begun_by(scene, other) == ids, "the second worker has them all")

    # It wakes up, its handlers return, and it commits what another has in its hands by now.
    scene.open_gate(frozen)
    frozen.send(signal.SIGCONT)
    await scene.until(lambda: handled_by(scene, frozen) == ids, "the first one is done, too late")
    assert (await scene.queue()).ready == 4
    assert not handled_by(scene, other)

    scene.open_gate(other)
    await scene.quiet()
    assert handled_by(scene, other) == ids
    await scene.stop(other)

    await scene.publish(*(Job(f"later-{n}") for n in range(8)))
    await scene.quiet()
    assert {f"later-{n}" for n in range(8)} <= handled_by(scene, frozen)
    await scene.stop(frozen)
    await scene.check()
