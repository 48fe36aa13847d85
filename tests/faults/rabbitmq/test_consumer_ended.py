"""A consumer that the broker ends begins again by itself, and disturbs nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from queuecraft import Message, QueueCraft, Unroutable
from tests.brokers.rabbitmq import RabbitMQ
from tests.faults.rabbitmq.handlers import Seen, at_work, disconnections, until


async def test_a_queue_deleted_under_its_worker_is_declared_again_and_the_worker_goes_on(
    rabbitmq_url: str,
) -> None:
    seen, other = Seen(), Seen()
    async with QueueCraft(rabbitmq_url) as qc, QueueCraft(rabbitmq_url) as operator:
        lost = disconnections(qc)
        billing = qc.worker("billing").on("order.*", seen)
        audit = qc.worker("audit").on("user.*", other)
        async with at_work(billing, audit):
            await qc.publish("order.placed", 1)
            await seen.has(1)
            await operator.admin.delete("billing")

            await accepted(qc, "order.placed", 2)
            await seen.has(2)
            await qc.publish("user.created", 3)
            await other.has(3)

        assert seen.payloads == [1, 2]
        assert lost == []


async def test_messages_that_are_being_handled_when_their_queue_is_deleted_end_without_harm(
    rabbitmq_url: str,
) -> None:
    seen, begun, may_end = Seen(), asyncio.Event(), asyncio.Event()

    async def slow(payload: object, message: Message) -> None:
        begun.set()
        await may_end.wait()
        await seen(payload, message)

    async with QueueCraft(rabbitmq_url) as qc, QueueCraft(rabbitmq_url) as operator:
        lost = disconnections(qc)
        billing = qc.worker("billing", concurrency=2, prefetch=4).on("order.*", slow)
        async with at_work(billing):
            await qc.publish_many("order.placed", [1, 2])
            await begun.wait()
            await operator.admin.delete("billing")
            may_end.set()
            await accepted(qc, "order.placed", 3)
            await seen.has(1, 2, 3)
        assert sorted(map(str, seen.payloads)) == ["1", "2", "3"]
        assert lost == []


@pytest.fixture
def impatient(rabbitmq: RabbitMQ) -> Iterator[None]:
    """A broker that gives a consumer a second for each message, and looks at its clock often.

    Channels learn of it when they are opened.
    """
    usual = rabbitmq.ctl(
        "eval",
        "[application:get_env(rabbit, Name) || Name <- [consumer_timeout, channel_tick_interval]].",
    )
    assert "{ok,1800000}" in usual
    set_limits(rabbitmq, "1000", "200")
    yield
    set_limits(rabbitmq, "1800000", "60000")


def set_limits(rabbitmq: RabbitMQ, timeout: str, tick: str) -> None:
    rabbitmq.ctl(
        "eval",
        f"application:set_env(rabbit, consumer_timeout, {timeout}), "
        f"application:set_env(rabbit, channel_tick_interval, {tick}).",
    )


@pytest.mark.usefixtures("impatient")
async def test_a_handler_slower_than_the_broker_allows_is_not_run_twice_and_the_worker_goes_on(
    rabbitmq_url: str,
) -> None:
    seen, other, ended = Seen(), Seen(), asyncio.Event()
    runs: list[object] = []

    async def slow(payload: object, message: Message) -> None:
        runs.append(payload)
        if payload == "slow":
            await ended.wait()
        await seen(payload, message)

    async with QueueCraft(rabbitmq_url) as qc, QueueCraft(rabbitmq_url) as operator:
        lost = disconnections(qc)
        billing = qc.worker("billing", concurrency=2, prefetch=4).on("order.*", slow)
        audit = qc.worker("audit").on("user.*", other)
        async with at_work(billing, audit):
            await qc.publish("order.placed", "slow")
            await consumers(operator, 1)
            await consumers(operator, 0)
            await consumers(operator, 1)
            ended.set()
            await qc.publish("order.placed", "next")
            await seen.has("slow", "next")
            await qc.publish("user.created", "other")
            await other.has("other")
        left = await operator.admin.inspect("billing")

    assert runs == ["slow", "next"]
    assert lost == []
    assert left.ready == 0


async def accepted(qc: QueueCraft, event: str, payload: object) -> None:
    """Publish as soon as the queue is there again: until then nobody is bound to the event."""

    async def is_accepted() -> bool:
        try:
            await qc.publish(event, payload)
        except Unroutable:
            return False
        return True

    await until(is_accepted)


async def consumers(qc: QueueCraft, count: int) -> None:
    """Wait until the queue has so many."""

    async def are_there() -> bool:
        return (await qc.admin.inspect("billing")).consumers == count

    await until(are_there)
