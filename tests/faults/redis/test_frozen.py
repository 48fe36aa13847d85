"""A worker that stands still for longer than its lease has lost what it held, and finds out."""

from __future__ import annotations

import signal

from tests.faults.job import Job
from tests.faults.rabbitmq.handlers import until
from tests.faults.redis.modes import STREAMS_LATER
from tests.faults.scene import Scene
from tests.faults.test_frozen import begun_by, handled_by


async def test_late_acks_of_a_frozen_worker_change_nothing_and_it_joins_again(
    scene: Scene,
) -> None:
    lease = {**scene.broker.brisk, **scene.broker.short_lease}
    ids = {f"job-{n}" for n in range(4)}
    await scene.declare()
    await scene.publish(*(Job(each, "waits") for each in sorted(ids)))

    frozen = scene.worker(constants=lease, prefetch=4)
    await scene.until(lambda: begun_by(scene, frozen) == ids, "the first worker has them all")
    scene.freeze(frozen)
    other = scene.worker(constants=lease, prefetch=4)
    await scene.until(lambda: begun_by(scene, other) == ids, "the second worker has them all")
    assert (await scene.queue()).consumers == 1

    # It wakes up, its handlers return, and it acks what another has in its hands by now.
    scene.open_gate(frozen)
    frozen.send(signal.SIGCONT)
    await scene.until(lambda: handled_by(scene, frozen) == ids, "the first one is done, too late")

    async def is_back() -> bool:  # it has asked for more, after its acks, and was told
        return (await scene.queue()).consumers == 2

    await until(is_back)
    assert (await scene.queue()).in_flight == 4
    assert not handled_by(scene, other)

    scene.open_gate(other)
    await scene.quiet()
    assert handled_by(scene, other) == ids
    assert all(line.redeliveries == 1 for line in scene.account().by(other.pid, "started"))
    await scene.stop(other)

    await scene.publish(*(Job(f"later-{n}") for n in range(3)))
    await scene.quiet()
    assert {"later-0", "later-1", "later-2"} <= handled_by(scene, frozen)
    await scene.stop(frozen)
    await scene.check()


@STREAMS_LATER
async def test_late_retries_of_a_frozen_worker_change_nothing_either(scene: Scene) -> None:
    lease = {**scene.broker.brisk, **scene.broker.short_lease}
    jobs = [Job(f"job-{n}", "waits, fails") for n in range(4)]
    await scene.declare()
    await scene.publish(*jobs)
    ids = {each.id for each in jobs}

    frozen = scene.worker(constants=lease, prefetch=4)
    await scene.until(lambda: begun_by(scene, frozen) == ids, "the first worker has them all")
    scene.freeze(frozen)
    other = scene.worker(constants=lease, prefetch=4)
    await scene.until(lambda: begun_by(scene, other) == ids, "the second worker has them all")
    scene.open_gate(frozen)
    frozen.send(signal.SIGCONT)
    await scene.until(
        lambda: len(scene.account().by(frozen.pid, "failed")) == 4, "it wants to retry them"
    )

    async def is_back() -> bool:
        return (await scene.queue()).consumers == 2

    await until(is_back)
    info = await scene.queue()
    assert (info.ready, info.in_flight, info.delayed) == (0, 4, 0)

    scene.open_gate(other)
    await scene.quiet()
    await scene.stop(frozen, other)
    account = await scene.check()
    assert account.ids("handled") == ids
