"""A RabbitMQ that dies or stands still under load has everything it confirmed when it is back."""

from __future__ import annotations

import asyncio

from tests.brokers.rabbitmq import RabbitMQ
from tests.faults.job import Job
from tests.faults.rabbitmq.test_network import goes_on, notice
from tests.faults.scene import Scene


async def test_a_broker_killed_under_load_and_started_again_has_lost_nothing(
    scene: Scene, rabbitmq: RabbitMQ
) -> None:
    await scene.declare()
    # The first delay makes the queue that retries wait in. Killed right after that, RabbitMQ would
    # forget it with all it holds, and no retry would be confirmed again.
    await scene.publish(Job("delayed"), delay=0.05)
    living = [
        scene.publisher(),
        scene.publisher(batch=5, in_flight=2),
        scene.worker(),
        scene.worker(concurrency=2, prefetch=20),
    ]
    await goes_on(scene, living)
    await scene.look_away()
    await asyncio.to_thread(rabbitmq.kill)
    await asyncio.to_thread(rabbitmq.start)
    await goes_on(scene, living)
    account = await scene.finish()

    assert account.count("cut") >= len(living)
    print(account.summary(), f"{account.copies} copies")


async def test_a_broker_that_stands_still_past_the_heartbeat_is_left_and_found_again(
    scene: Scene, rabbitmq: RabbitMQ
) -> None:
    await scene.declare()
    living = [
        scene.publisher(heartbeat=1),
        scene.publisher(heartbeat=1, batch=5, in_flight=2),
        scene.worker(heartbeat=1),
        scene.worker(heartbeat=1, concurrency=2, prefetch=20),
    ]
    await goes_on(scene, living)
    await asyncio.to_thread(rabbitmq.freeze)
    try:
        await notice(scene, living)
    finally:
        await asyncio.to_thread(rabbitmq.thaw)
    await goes_on(scene, living)
    account = await scene.finish()
    print(account.summary(), f"{account.copies} copies")
