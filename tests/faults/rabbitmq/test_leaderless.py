"""A quorum queue without a leader confirms nothing, and no worker or publisher waits for it for
ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from urllib.parse import unquote, urlsplit

import pytest

from queuecraft import Message, PublishError, QueueCraft, Retry
from tests.brokers.rabbitmq import RabbitMQ
from tests.faults.rabbitmq.handlers import Seen, at_work, disconnections, until

LEVEL = "qc.delay.00"
SOON = Retry(max_retries=2, initial_delay=0.02, factor=1)
UNCONFIRMED = f"not confirmed a message to exchange '{LEVEL}'"


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr("queuecraft.drivers.rabbitmq.driver.CONFIRMED_WITHIN", 1.0)
    return 1.0


@asynccontextmanager
async def without_leader(rabbitmq: RabbitMQ, url: str, queue: str) -> AsyncGenerator[None]:
    """The broker says that the queue runs, but whoever should lead it does nothing. So it is for
    good where a broker was killed right after the queue was made."""
    name = f"'{unquote(urlsplit(url).path[1:])}_{queue}'"
    await asyncio.to_thread(rabbitmq.ctl, "eval", f"ok = sys:suspend({name}).")
    try:
        yield
    finally:
        await asyncio.to_thread(rabbitmq.ctl, "eval", f"ok = sys:resume({name}).")


async def test_a_worker_whose_retries_are_never_confirmed_says_so_and_goes_on(
    rabbitmq: RabbitMQ, rabbitmq_url: str, patience: float
) -> None:
    seen = Seen()

    async def fickle(payload: object, message: Message) -> None:
        if str(payload).startswith("bad") and message.attempt == 1:
            raise ValueError("not the first time")
        await seen(payload, message)

    good = [f"good-{n}" for n in range(20)]
    bad = [f"bad-{n}" for n in range(8)]
    async with QueueCraft(rabbitmq_url, publish_timeout=patience, reconnect_delay=0.05) as qc:
        lost = disconnections(qc)
        billing = qc.worker("billing", concurrency=2, prefetch=4, retry=SOON).on("order.*", fickle)
        async with at_work(billing):
            await qc.publish("order.placed", "bad, and its retry makes the level")
            await seen.until(lambda: seen.payloads)
            assert not lost
            async with without_leader(rabbitmq, rabbitmq_url, LEVEL):
                await qc.publish_many("order.placed", [*bad, *good])
                await seen.has(*good)
                assert lost
                assert all(UNCONFIRMED in each.error for each in lost)
                assert UNCONFIRMED in str(qc.health_check().last_error)
            await seen.has(*bad)
    first = {each.payload: each for each in reversed(seen.messages)}
    assert {first[each].attempt for each in bad} == {2}
    assert {first[each].attempt for each in good} == {1}


async def test_a_delayed_publish_that_is_never_confirmed_does_not_hold_up_all_others(
    rabbitmq: RabbitMQ, rabbitmq_url: str, patience: float
) -> None:
    seen = Seen()
    async with (
        QueueCraft(rabbitmq_url, publish_timeout=patience, reconnect_delay=0.05) as qc,
        at_work(qc.worker("billing").on("order.*", seen)),
    ):
        await qc.publish("order.placed", "makes the level", delay=0.05)
        async with without_leader(rabbitmq, rabbitmq_url, LEVEL):
            with pytest.raises(PublishError) as raised:
                await qc.publish("order.placed", "delayed", delay=0.05)
            assert raised.value.outcome == "unknown"
            await until(partial(published, qc, "order.placed", "at once"))
            await seen.has("at once")


async def published(qc: QueueCraft, event: str, payload: object) -> bool:
    """Whether it was: it may have had to wait behind what is not confirmed."""
    try:
        await qc.publish(event, payload)
    except PublishError:
        return False
    return True
