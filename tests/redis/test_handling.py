"""Publish, handle, fail, and send back, on a real Redis."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from queuecraft import (
    ConfigError,
    Event,
    Message,
    Queue,
    QueueCraft,
    Retry,
    Unroutable,
    UnsupportedFeature,
)
from queuecraft.runtime.worker import Worker
from queuecraft.testing import Ledger
from tests.brokers.redis import Redis, call
from tests.redis.place import Place, eventually

MODES = pytest.mark.parametrize("mode", ["list", "stream", "pubsub"])
AT_ONCE = Retry(max_retries=2, initial_delay=0.01)


@dataclass
class Order:
    id: str


order_placed = Event("order.placed", Order)


@asynccontextmanager
async def running(*workers: Worker) -> AsyncGenerator[None]:
    """Workers that run, and listen, until the block ends."""
    for worker in workers:
        await worker.start()
    try:
        yield
    finally:
        for worker in workers:
            await worker.stop()


async def listening(place: Place, *queues: str) -> None:
    """Until somebody consumes these queues."""
    for queue in queues:

        async def is_consumed(queue: str = queue) -> bool:
            if not await place.call("HLEN", place.key(f"consumers:{queue}")):
                return False
            kept = await place.call("HGET", place.key("queues"), queue)
            _, count = await place.call("PUBSUB", "NUMSUB", place.key(f"live:{queue}"))
            return count > 0 or not kept.startswith(b"p")

        await eventually(is_consumed)


@MODES
async def test_an_event_is_handled_by_every_queue_with_all_it_says(place: Place, mode: str) -> None:
    seen = Ledger()
    arrived: list[Message[Order]] = []
    qc = QueueCraft(f"{place.url}&mode={mode}")
    billing, audit = qc.worker("billing"), qc.worker("audit")

    @billing.on(order_placed)
    async def charge(order: Order, message: Message[Order]) -> None:
        arrived.append(message)
        seen.record("billing", message)

    audit.on("order.*", seen.recording("audit"))
    async with qc, running(billing, audit):
        await listening(place, "billing", "audit")
        id = await qc.publish(order_placed, Order("ö-1"), key="ada", headers={"n": 1})
        await seen.wait_for(billing=1, audit=1)
    (message,) = arrived
    assert message.payload == Order("ö-1")
    assert (message.id, message.key, message.routing_key) == (id, "ada", "order.placed")
    assert (message.attempt, message.redeliveries) == (1, 0)


@MODES
async def test_a_failing_message_is_retried_then_kept_then_sent_back(
    place: Place, mode: str
) -> None:
    seen = Ledger()
    fails = True
    qc = QueueCraft(f"{place.url}&mode={mode}", retry=AT_ONCE)
    billing = qc.worker("billing")
    audit = qc.worker("audit").on(order_placed, seen.recording("audit"))

    @billing.on(order_placed)
    async def charge(order: Order, message: Message[Order]) -> None:
        seen.record("billing", message)
        if fails:
            raise ValueError("no money")

    async with qc, running(billing, audit):
        await listening(place, "billing", "audit")
        await qc.publish(order_placed, Order("o-1"))
        await seen.wait_for(billing=3, audit=1)

        async def is_dead() -> bool:
            return (await qc.admin.inspect("billing")).dead == 1

        await eventually(is_dead)
        (letter,) = await qc.dead_letters.list("billing")
        assert (letter.error, letter.reason) == ("no money", "handler-error")
        fails = False
        assert (await qc.dead_letters.redrive("billing")).moved == 1
        await seen.wait_for(billing=4)
    assert seen.attempts("billing") == [1, 2, 3, 1]
    assert seen.attempts("audit") == [1]


@pytest.mark.parametrize("mode", ["list", "stream"])
async def test_a_worker_survives_the_end_of_the_server(
    redis: Redis, place: Place, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "queuecraft")
    seen = Ledger()
    qc = QueueCraft(f"{place.url}&mode={mode}", reconnect_delay=0.05)
    billing = qc.worker("billing").on(order_placed, seen.recording("billing"))
    async with qc, running(billing):
        await qc.publish(order_placed, Order("o-1"))
        await seen.wait_for(billing=1)
        redis.kill()
        publishing = asyncio.create_task(qc.publish(order_placed, Order("o-2")))
        redis.start()
        await publishing
        await seen.wait_for(billing=2)


async def test_a_payload_pushed_by_another_program_reaches_the_only_handler(place: Place) -> None:
    seen: asyncio.Queue[Order] = asyncio.Queue()
    qc = QueueCraft(f"{place.url}&mode=list")
    billing = qc.worker(Queue("billing", Order))

    @billing.on(Queue("billing", Order))
    async def charge(order: Order) -> None:
        seen.put_nowait(order)

    async with qc, running(billing):
        await place.call("RPUSH", place.key("queue:billing"), '{"id": "o-1"}')
        assert await seen.get() == Order("o-1")


async def test_ordering_by_key_has_one_active_process(place: Place) -> None:
    seen: list[str] = []
    done = asyncio.Event()
    apps = [QueueCraft(f"{place.url}&mode=list") for _ in range(2)]
    workers = [qc.worker("billing", ordering="key", concurrency=4) for qc in apps]
    for worker in workers:

        @worker.on(order_placed)
        async def charge(order: Order) -> None:
            await asyncio.sleep(0)
            seen.append(order.id)
            if len(seen) == 100:
                done.set()

    async with apps[0], apps[1], running(*workers):
        for number in range(100):
            await apps[number % 2].publish(order_placed, Order(f"{number:03}"), key="ada")
        await done.wait()
    assert seen == sorted(seen)


async def test_what_a_mode_cannot_do_is_refused_before_anything_is_sent(place: Place) -> None:
    async with QueueCraft(f"{place.url}&mode=stream") as qc:
        with pytest.raises(UnsupportedFeature, match="priorit"):
            await qc.publish(order_placed, Order("o-1"), priority=5)
    async with QueueCraft(f"{place.url}&mode=pubsub") as qc:
        with pytest.raises(UnsupportedFeature):
            await qc.publish_many(order_placed, [Order("o-1")], atomic=True)
        with pytest.raises(Unroutable, match="nobody listens"):
            await qc.publish(order_placed, Order("o-1"))
        worker = qc.worker("billing").on(order_placed, lambda order: None)
        with pytest.raises(ConfigError, match="cannot have 2 processes"):
            worker.check_processes(2)


async def test_the_setting_names_the_mode_as_the_url_does(redis: Redis, place: Place) -> None:
    async with QueueCraft(place.url, redis_mode="stream") as qc:
        await qc.admin.declare("billing", "order.*")
    assert call(redis.url, "EXISTS", place.key("stream:billing")) == 1
