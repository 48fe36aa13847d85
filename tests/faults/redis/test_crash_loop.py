"""A message that kills whoever handles it is set aside, and its neighbours are not."""

from __future__ import annotations

from tests.faults.job import QUEUE, Job
from tests.faults.redis.modes import STREAMS_LATER
from tests.faults.scene import Scene
from tests.faults.test_crash_loop import LIMIT

SIX = range(6)


@STREAMS_LATER
async def test_a_message_that_kills_its_worker_ends_as_a_dead_letter_and_its_neighbours_do_not(
    scene: Scene,
) -> None:
    lease = {**scene.broker.brisk, **scene.broker.short_lease}
    options = {"max_redeliveries": LIMIT, "prefetch": 10, "constants": lease}
    await scene.declare()
    await scene.publish(*(Job(f"before-{n}") for n in SIX))
    await scene.publish(Job("killer", "kills"))
    await scene.publish(*(Job(f"after-{n}") for n in SIX))

    for _ in range(LIMIT + 1):
        await scene.dies(scene.worker(**options))
    last = scene.worker(**options)
    await scene.quiet()
    await scene.stop(last)

    assert await scene.note_dead_letters() == 1
    account = scene.account()
    (dead,) = [line for line in account.lines if line.what == "dead"]
    assert (dead.id, dead.reason, dead.attempt) == ("killer", "crash-loop", 0)
    runs = [line for line in account.lines if line.what == "started" and line.id == "killer"]
    assert [line.redeliveries for line in runs] == list(range(LIMIT + 1))
    assert {line.attempt for line in runs} == {1}
    assert account.ids("handled") == account.ids("published") - {"killer"}
    await (await scene.qc).dead_letters.purge(QUEUE)
    await scene.check()
