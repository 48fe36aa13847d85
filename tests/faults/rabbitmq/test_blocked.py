"""A RabbitMQ short of memory takes nothing more, gives what it has, and gets the rest later."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from queuecraft import PublishError, QueueCraft
from tests.brokers.rabbitmq import RabbitMQ
from tests.faults.rabbitmq.handlers import Seen, at_work, hold_and_die


@asynccontextmanager
async def short_of_memory(rabbitmq: RabbitMQ) -> AsyncGenerator[None]:
    """The broker believes that it uses too much."""
    await asyncio.to_thread(rabbitmq.ctl, "set_vm_memory_high_watermark", "0.0001")
    try:
        yield
    finally:
        await asyncio.to_thread(rabbitmq.ctl, "set_vm_memory_high_watermark", "0.4")


async def test_publishes_wait_for_a_blocked_broker_and_consuming_goes_on(
    rabbitmq: RabbitMQ, rabbitmq_url: str
) -> None:
    seen = Seen()
    async with (
        QueueCraft(rabbitmq_url, heartbeat=1) as qc,
        QueueCraft(rabbitmq_url, publish_timeout=0.5) as hasty,
    ):
        billing = qc.worker("billing").on("order.*", seen)
        await billing.declare()
        await qc.publish_many("order.placed", range(50))
        async with contextlib.AsyncExitStack() as stack:
            async with short_of_memory(rabbitmq):
                waiting = [
                    asyncio.create_task(qc.publish("order.placed", n)) for n in range(50, 60)
                ]
                with pytest.raises(PublishError, match=r"within 0\.5 s") as raised:
                    await hasty.publish("order.placed", "in vain, or late")
                assert raised.value.outcome == "unknown"
                assert hasty.health_check().blocked == "low on memory"
                assert not hasty.health_check().ok

                await stack.enter_async_context(at_work(billing))
                await seen.has(*range(50))
                assert not any(each.done() for each in waiting)
                assert seen.payloads == list(range(50))
            await asyncio.gather(*waiting)
            assert hasty.health_check().ok
            await seen.has(*range(60), "in vain, or late")

    numbers = [each for each in seen.payloads if isinstance(each, int)]
    assert numbers == list(range(60))


async def test_what_comes_again_is_handled_though_the_broker_takes_no_message_to_count_it(
    rabbitmq: RabbitMQ, rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuecraft.drivers.rabbitmq.subscription.SENT_AGAIN_WITHIN", 0.3)
    seen = Seen()
    async with QueueCraft(rabbitmq_url) as qc:
        await qc.worker("billing").on("order.*", seen).declare()
        await qc.publish_many("order.placed", range(10))
    await hold_and_die(rabbitmq_url, "billing", 10)

    async with (
        short_of_memory(rabbitmq),
        QueueCraft(rabbitmq_url) as qc,
        at_work(qc.worker("billing", prefetch=10).on("order.*", seen)),
    ):
        await seen.has(*range(10))
    assert {each.redeliveries for each in seen.messages} == {1}
