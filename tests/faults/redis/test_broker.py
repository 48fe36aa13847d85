"""A Redis that dies, stands still or forgets its scripts has all that it answered for."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from tests.brokers.redis import Redis
from tests.faults.process import Process
from tests.faults.rabbitmq.test_network import goes_on, notice
from tests.faults.redis.modes import STREAMS_LATER
from tests.faults.scene import Broker, Scene

CRASHES = 3
FLUSHES = 10


@pytest.fixture
def broker(broker: Broker) -> Broker:
    """Here a publish may be repeated, and there are two of it: each may be retried."""
    return dataclasses.replace(broker, atomic_moves=False)


def company(scene: Scene, **options: float) -> list[Process]:
    return [
        scene.publisher(**options),
        scene.publisher(batch=5, in_flight=2, **options),
        scene.worker(**options),
        scene.worker(concurrency=2, prefetch=20, **options),
    ]


async def test_a_broker_killed_under_load_and_started_again_has_lost_nothing(
    scene: Scene, redis: Redis
) -> None:
    await scene.declare()
    living = company(scene)
    for _ in range(CRASHES):
        await goes_on(scene, living)
        await scene.look_away()
        await asyncio.to_thread(redis.kill)
        await asyncio.to_thread(redis.start)
    await goes_on(scene, living)
    account = await scene.finish()

    assert account.count("cut") >= CRASHES * len(living)
    print(account.summary(), f"{account.copies} copies")


@STREAMS_LATER
async def test_a_broker_that_stands_still_past_the_heartbeat_is_left_and_found_again(
    scene: Scene, redis: Redis
) -> None:
    await scene.declare()
    living = company(scene, heartbeat=1)
    await goes_on(scene, living)
    await asyncio.to_thread(redis.freeze)
    try:
        await notice(scene, living)
    finally:
        await asyncio.to_thread(redis.thaw)
    await goes_on(scene, living)
    account = await scene.finish()
    print(account.summary(), f"{account.copies} copies")


async def test_a_broker_that_forgets_its_scripts_under_load_costs_nothing(
    scene: Scene, redis: Redis
) -> None:
    await scene.declare()
    living = company(scene)
    for _ in range(FLUSHES):
        await goes_on(scene, living)
        await asyncio.to_thread(redis.call, "SCRIPT", "FLUSH")
    account = await scene.finish()

    assert account.losses == []
    assert account.duplicates == []
