"""QueueCraft: typed, routed by topic, stored by a script; acked when handled.

Orders are msgspec Structs. A message is in a hash of its consumer, or pending in the group of its
stream, until its handler has returned: if the process dies, it is delivered again. A consumer has
a hundred handlers at once, or one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from benchmarks.harness import Case, Measurement
from benchmarks.memory.ours import in_batches
from benchmarks.order import Order, orders
from benchmarks.rabbitmq.stretch import (
    EVENT,
    IN_FLIGHT,
    PREFETCH,
    QUEUE,
    Pace,
    Stretch,
    in_flight,
    one_at_a_time,
    timed,
)
from benchmarks.redis.broker import place, verify
from queuecraft import Event, QueueCraft

order_placed = Event(EVENT, Order)


async def make_queue(url: str) -> None:
    """As a worker would."""
    async with QueueCraft(url) as qc:
        await qc.admin.declare(QUEUE, order_placed.name)


async def verify_depth(url: str, expected: int) -> None:
    async with QueueCraft(url) as qc:
        found = await qc.admin.inspect(QUEUE)
    verify((found.ready or 0) + (found.in_flight or 0), expected)


async def publish_singly(messages: int, *, mode: str, pace: Pace[Order]) -> Measurement:
    payloads = orders(Order, messages)
    with place() as here:
        url = here.url(mode)
        await make_queue(url)
        async with QueueCraft(url) as qc:

            async def publish(order: Order) -> None:
                await qc.publish(order_placed, order)

            measurement = await timed(pace(publish, payloads), messages)
        await verify_depth(url, messages)
    return measurement


async def publish_many(messages: int) -> Measurement:
    payloads = orders(Order, messages)
    with place() as here:
        url = here.url("list")
        await make_queue(url)
        async with QueueCraft(url) as qc:
            measurement = await timed(in_batches(qc, order_placed, payloads), messages)
        await verify_depth(url, messages)
    return measurement


async def consume(messages: int, *, mode: str, concurrency: int) -> Measurement:
    stretch = Stretch(messages)
    with place() as here:
        url = here.url(mode)
        await make_queue(url)
        async with QueueCraft(url) as qc:
            await in_batches(qc, order_placed, orders(Order, messages))
        async with QueueCraft(url) as qc:
            worker = qc.worker(QUEUE, concurrency=concurrency, prefetch=PREFETCH)

            @worker.on(order_placed)
            async def charge(order: Order) -> None:
                stretch.add(order)

            await worker.start()
            await stretch.done.wait()
        await verify_depth(url, 0)
    return stretch.measurement(Order)


def case(name: str, run: Callable[[int], Awaitable[Measurement]]) -> Case:
    return Case(name=name, group="redis", contender="QueueCraft", run=run)


CASES = (
    case("publish_many, batches of 500", publish_many),
    case("publish, 100 in flight", partial(publish_singly, mode="list", pace=in_flight)),
    case("publish, one at a time", partial(publish_singly, mode="list", pace=one_at_a_time)),
    case(
        "publish to streams, 100 in flight", partial(publish_singly, mode="stream", pace=in_flight)
    ),
    case("consume lists, 100 handlers", partial(consume, mode="list", concurrency=IN_FLIGHT)),
    case("consume lists, 1 handler", partial(consume, mode="list", concurrency=1)),
    case("consume streams, 100 handlers", partial(consume, mode="stream", concurrency=IN_FLIGHT)),
    case("consume streams, 1 handler", partial(consume, mode="stream", concurrency=1)),
)
