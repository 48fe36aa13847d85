"""Giving a message back to a real RabbitMQ is not held against it, whoever gets it next."""

from __future__ import annotations

import pytest

from queuecraft.drivers.base import Outgoing, Queue
from queuecraft.drivers.rabbitmq import drivers
from queuecraft.drivers.target import Target


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_giving_back_what_was_redelivered_is_not_one_more_crash(
    rabbitmq_url: str, kind: str
) -> None:
    queue = Queue("billing", arguments={"x-queue-type": kind})
    seen: list[int] = []
    for crashes in (True, False, False, True, False, False):
        (driver,) = drivers(Target(rabbitmq_url))  # as in a process of its own
        await driver.open()
        if not seen:
            await driver.declare(queue)
            await driver.send([Outgoing(b"{}", "m-1", queue="billing")])
        consumer = await driver.subscribe(queue, prefetch=10)
        (delivery,) = await consumer.receive(1, 10)
        seen.append(delivery.redeliveries)
        if not crashes:
            await consumer.release([delivery])
        await consumer.close()
        await driver.close()
    assert seen == [0, 1, 1, 1, 2, 2]
