"""A RabbitMQ short of memory takes nothing more, gives what it has, and gets the rest later."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from queuecraft import Message, PublishError, QueueCraft, Retry
from tests.brokers.rabbitmq import RabbitMQ
from tests.faults.rabbitmq.handlers import Seen, at_work, disconnections, hold_and_die, until


@asynccontextmanager
async def short_of_memory(rabbitmq: RabbitMQ) -> AsyncGenerator[None]:
    """The broker believes that it uses too much."""
    await asyncio.to_thread(rabbitmq.ctl, "set_vm_memory_high_watermark", "0.0001")
    try:
        yield
    finally:
        await asyncio.to_thread(rabbitmq.ctl, "set_vm_memory_high_watermark", "0.4")


async def test_publishes_wait_for_a_blocked_broker_and_consuming_goes_on(
    rabbitmq: RabbitMQ, rabbitmq_url: str, caplog: pytest.LogCaptureFixture
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
                with pytest.raises(PublishError, match=r"within 0\.5 s: low on memory") as raised:
                    await hasty.publish("order.placed", "in vain, or late")
                assert raised.value.outcome == "unknown"
                assert hasty.health_check().blocked == "low on memory"
                assert not hasty.health_check().ok
                assert "takes no messages: low on memory; publishes wait" in caplog.text

                await stack.enter_async_context(at_work(billing))
                await seen.has(*range(50))
                assert not any(each.done() for each in waiting)
                assert seen.payloads == list(range(50))
            await asyncio.gather(*waiting)
            assert hasty.health_check().ok
            assert "takes messages again" in caplog.text
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


async def test_a_retry_waits_for_a_blocked_broker_and_the_connection_is_not_given_up_for_it(
    rabbitmq: RabbitMQ, rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuecraft.drivers.rabbitmq.driver.CONFIRMED_WITHIN", 1.0)
    seen, failed = Seen(), asyncio.Event()

    async def fickle(payload: object, message: Message) -> None:
        if payload == "bad" and message.attempt == 1:
            failed.set()
            raise ValueError("not the first time")
        await seen(payload, message)

    async with QueueCraft(rabbitmq_url, publish_timeout=0.1) as qc:
        lost = disconnections(qc)
        retry = Retry(max_retries=1, initial_delay=0.02)
        billing = qc.worker("billing", prefetch=4, retry=retry).on("order.*", fickle)
        await billing.declare()
        await qc.publish_many("order.placed", ["bad", *range(20)])
        async with contextlib.AsyncExitStack() as stack:
            async with short_of_memory(rabbitmq):
                await stack.enter_async_context(at_work(billing))
                await failed.wait()
                await until(partial(is_blocked, qc))
                await seen.has(*range(20))
                await asyncio.sleep(2.5)  # far longer than a confirm is waited for here
                assert "bad" not in seen.payloads
                assert qc.health_check().blocked
            await seen.has("bad", *range(20))
        assert lost == []
    attempts = {each.payload: (each.attempt, each.redeliveries) for each in seen.messages}
    expected: dict[object, tuple[int, int]] = dict.fromkeys(range(20), (1, 0))
    assert attempts == {**expected, "bad": (2, 0)}
    assert len(seen.messages) == 21


async def is_blocked(qc: QueueCraft) -> bool:
    return qc.health_check().blocked is not None
