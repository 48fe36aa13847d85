"""A worker on a quorum queue gives back what it has not begun, and goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from queuecraft import Queue, QueueCraft
from queuecraft.drivers.base import Delivery, Driver, Outgoing, Subscription
from queuecraft.drivers.rabbitmq import drivers
from queuecraft.drivers.target import Target
from queuecraft.facts import Disconnected
from queuecraft.testing import Ledger
from tests.rabbitmq.place import AT_ONCE, Order, number, order_placed, running, until, until_ready

QUORUM = {"x-queue-type": "quorum"}
SUSPECT = 3  # redeliveries after which a message is handled alone


@pytest.mark.parametrize("kind", ["quorum", "classic"])
async def test_a_consumer_that_has_given_back_receives_again_while_it_holds_another(
    rabbitmq_url: str, kind: str
) -> None:
    async with six_messages(rabbitmq_url, kind) as (driver, subscription):
        taken: list[Delivery] = []
        while len(taken) < 6:
            taken += await subscription.receive(6, 5)
        held, *rest = taken
        for _ in range(3):
            await subscription.release(rest)
            rest = []
            while len(rest) < 5:
                rest += await subscription.receive(6, 5)
            assert {each.sent.id for each in rest} == {f"m-{n}" for n in range(1, 6)}
        assert await subscription.ack([held, *rest]) == []
        await subscription.close()
        assert await until(lambda: driver.count("billing"), lambda left: left == 0) == 0


async def test_a_worker_is_paused_and_resumed_while_a_handler_runs_on(rabbitmq_url: str) -> None:
    lost: list[Disconnected] = []
    done: set[int] = set()
    gates = {0: asyncio.Event(), 1: asyncio.Event()}
    qc = QueueCraft(rabbitmq_url)
    qc.observe(Disconnected, lost.append)
    billing = qc.worker(Queue("billing", arguments=QUORUM), concurrency=2, prefetch=10)

    @billing.on(number)
    async def handle(value: int) -> None:
        if value in gates:
            await gates[value].wait()
        done.add(value)

    async def handled() -> int:
        return len(done)

    async with qc, running(billing):
        await qc.publish_many(number, range(20))
        await until_ready(qc, "billing", 10)
        billing.pause()
        await until_ready(qc, "billing", 18)
        billing.resume()
        gates[1].set()
        await until(handled, lambda count: count == 19)
        assert not lost
        gates[0].set()
        await until(handled, lambda count: count == 20)
    assert not lost


@pytest.mark.parametrize("kind", ["quorum", "classic"])
async def test_what_has_come_and_was_not_asked_for_goes_back_as_well(
    rabbitmq_url: str, kind: str
) -> None:
    """A worker that is paused would keep it from all others."""
    async with six_messages(rabbitmq_url, kind) as (driver, subscription):
        await until(lambda: driver.count("billing"), lambda left: left == 0)
        held, given = await subscription.receive(2, 5)
        await subscription.release([given])
        await until(lambda: driver.count("billing"), lambda left: left == 5)
        again: list[Delivery] = []
        while len(again) < 5:
            again += await subscription.receive(6, 5)
        assert [each.sent.id for each in again] == [f"m-{n}" for n in range(1, 6)]
        assert await subscription.ack([held, *again]) == []
        await subscription.close()


async def test_messages_that_outlived_workers_are_retried_without_losing_the_connection(
    rabbitmq_url: str,
) -> None:
    seen = Ledger()
    lost: list[Disconnected] = []
    qc = QueueCraft(rabbitmq_url, retry=AT_ONCE, reconnect_delay=0.05)
    qc.observe(Disconnected, lost.append)
    billing = qc.worker(Queue("billing", arguments=QUORUM), concurrency=4, prefetch=20)
    billing.on(order_placed, seen.failing("billing", times=1))
    async with qc:
        await billing.declare()
        for n in range(40):
            seen.published(await qc.publish(order_placed, Order(f"o-{n}")))
        for _ in range(SUSPECT):
            await hold_and_die(rabbitmq_url, "billing", 20)
        async with running(billing):
            await seen.wait_for(billing=80)
            await until_ready(qc, "billing", 0)
    assert [each.error for each in lost] == []
    seen.check(by=["billing"])


@asynccontextmanager
async def six_messages(url: str, kind: str) -> AsyncGenerator[tuple[Driver, Subscription]]:
    """A queue of that kind with as many, and a consumer that may hold all of them."""
    billing = Queue("billing", arguments={"x-queue-type": kind})
    (driver,) = drivers(Target(url))
    await driver.open()
    try:
        await driver.declare(billing)
        await driver.send([Outgoing(b"", f"m-{n}", queue="billing") for n in range(6)])
        yield driver, await driver.subscribe(billing, prefetch=6)
    finally:
        await driver.close()


async def hold_and_die(url: str, queue: str, count: int) -> None:
    """Receive so many messages, and be gone without a word about them."""
    (driver,) = drivers(Target(url))
    await driver.open()
    subscription = await driver.subscribe(Queue(queue), prefetch=count)
    held = 0
    while held < count:
        held += len(await subscription.receive(count, 5))
    await driver.close()
