"""Many who see to what a dead worker has left, all at once, put each message back but once."""

from __future__ import annotations

from functools import partial

from tests.faults.job import Job
from tests.faults.process import Process
from tests.faults.scene import Scene
from tests.faults.test_frozen import begun_by

HELD = 50
REAPERS = 4


async def test_reapers_that_race_put_each_message_back_once(scene: Scene) -> None:
    lease = {**scene.broker.brisk, **scene.broker.short_lease}
    eager = {**lease, "queuecraft.drivers.redis.driver:BEAT": 0.002}
    await scene.declare()
    await scene.publish(*(Job(f"job-{n}", "waits") for n in range(HELD)))
    ids = {f"job-{n}" for n in range(HELD)}
    holders = [scene.worker(constants=lease, prefetch=HELD // 2) for _ in range(2)]
    await scene.busy(*holders)
    assert (await scene.queue()).in_flight == HELD

    reapers = [scene.worker(constants=eager, prefetch=HELD) for _ in range(REAPERS)]
    for each in reapers:
        scene.open_gate(each)
        await scene.until(partial(is_ready, scene, each), "it looks for the dead")
    assert not any(begun_by(scene, each) for each in reapers)
    for each in holders:
        scene.kill(each)
    await scene.quiet()
    await scene.stop(*reapers)
    account = await scene.check()

    after = [line for each in reapers for line in account.by(each.pid, "started")]
    assert sorted(line.id for line in after) == sorted(ids)
    assert {line.redeliveries for line in after} == {1}


def is_ready(scene: Scene, process: Process) -> bool:
    return bool(scene.account().by(process.pid, "ready"))
