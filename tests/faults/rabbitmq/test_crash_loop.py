"""A message that kills whoever handles it is set aside, whichever kind of queue it is in."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from tests.faults.job import QUEUE, Job
from tests.faults.scene import Broker, Scene
from tests.faults.test_crash_loop import LIMIT
from tests.faults.test_crash_loop import (
    test_a_message_that_kills_its_worker_ends_as_a_dead_letter_and_its_neighbours_do_not as told,
)

QUEUES = {"classic": {}, "quorum": {"x-queue-type": "quorum"}}


@pytest.fixture(params=[*QUEUES.values()], ids=[*QUEUES])
def broker(request: pytest.FixtureRequest, broker: Broker) -> Broker:
    arguments: Mapping[str, str] = request.param
    return dataclasses.replace(broker, arguments=arguments)


async def test_a_message_that_kills_its_worker_ends_as_a_dead_letter_and_its_neighbours_do_not(
    scene: Scene,
) -> None:
    await told(scene)


async def test_neighbours_of_a_killer_are_not_condemned_by_workers_that_pass_them_to_each_other(
    scene: Scene,
) -> None:
    await scene.declare()
    await scene.publish(*(Job(f"before-{n}") for n in range(30)))
    await scene.publish(Job("killer", "kills"))
    await scene.publish(*(Job(f"after-{n}") for n in range(30)))
    options = {"max_redeliveries": LIMIT, "prefetch": 20, "pace": 0.02}
    living = [scene.worker(**options), scene.worker(**options)]
    deaths = 0
    while deaths <= LIMIT:
        await scene.until(lambda: any(each.status is not None for each in living), "one dies")
        for each in [each for each in living if each.status is not None]:
            await scene.dies(each)
            living[living.index(each)] = scene.again(each)
            deaths += 1
    await scene.quiet()
    await scene.stop(*living)

    await scene.note_dead_letters()
    account = scene.account()
    dead = [(line.id, line.reason) for line in account.lines if line.what == "dead"]
    assert dead == [("killer", "crash-loop")]
    assert account.ids("handled") == account.ids("published") - {"killer"}
    await (await scene.qc).dead_letters.purge(QUEUE)
    await scene.check()
