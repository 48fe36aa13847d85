"""A record that kills whoever handles it is set aside on Kafka too, which counts no deliveries."""

from __future__ import annotations

import dataclasses
import signal
from functools import partial

import pytest

from tests.faults.account import Account
from tests.faults.job import Job
from tests.faults.scene import Broker, Scene
from tests.faults.test_crash_loop import (
    test_a_message_that_kills_its_worker_ends_as_a_dead_letter_and_its_neighbours_do_not as told,
)

test_a_record_that_kills_its_worker_ends_as_a_dead_letter_and_its_neighbours_do_not = told


@pytest.fixture(params=[1, 4], ids=["one partition", "four"])
def broker(request: pytest.FixtureRequest, broker: Broker) -> Broker:
    return dataclasses.replace(broker, url=f"{broker.url}&partitions={request.param}")


async def test_what_was_in_hand_is_counted_once_for_each_who_died(scene: Scene) -> None:
    await scene.declare()
    await scene.publish(*(Job(f"held-{n}", "waits") for n in range(4)))
    for deaths in range(2):
        worker = scene.worker(prefetch=10)
        pid = worker.pid
        await scene.until(partial(has_begun, scene, pid, 4), "all are begun")
        assert counts(scene.account(), pid) == {deaths}
        scene.kill(worker)
    last = scene.worker(prefetch=10)
    scene.open_gate(last)
    await scene.quiet()
    await scene.publish(*(Job(f"new-{n}") for n in range(20)))
    account = await scene.finish()

    runs = [line for line in account.lines if line.what == "started" and line.pid == last.pid]
    assert {line.redeliveries for line in runs if line.id.startswith("held")} == {2}
    assert {line.redeliveries for line in runs if line.id.startswith("new")} == {0}


async def test_who_leaves_blames_nobody(scene: Scene) -> None:
    await scene.declare()
    await scene.publish(*(Job(f"held-{n}", "waits") for n in range(4)))
    first = scene.worker(prefetch=10)
    await scene.until(partial(has_begun, scene, first.pid, 4), "all are begun")
    await scene.publish(*(Job(f"given-back-{n}") for n in range(20)))
    first.send(signal.SIGTERM)  # with some in hand that are not begun
    scene.open_gate(first)
    await scene.ended(first)
    second = scene.worker(prefetch=10)
    await scene.quiet()
    account = await scene.finish()

    assert account.by(second.pid, "handled")
    assert counts(account, second.pid) == {0}


def has_begun(scene: Scene, pid: int, jobs: int) -> bool:
    lines = scene.account().lines
    return len([each for each in lines if each.what == "started" and each.pid == pid]) == jobs


def counts(account: Account, pid: int) -> set[int]:
    runs = [each for each in account.lines if each.what == "started" and each.pid == pid]
    return {each.redeliveries for each in runs}
