"""QueueCraft: typed, routed through a topic exchange, mandatory and confirmed; acked when handled.

Orders are msgspec Structs. The exchange and a header with the time of publishing are more work for
the broker than what the others send, most of them straight to the queue. A consumer has a hundred
handlers at once, as many as the asyncio clients run, or eight, or one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from benchmarks.harness import Case, Measurement
from benchmarks.memory.ours import in_batches
from benchmarks.order import Order, orders
from benchmarks.rabbitmq.broker import place, verify_depth
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
from queuecraft import Event, Queue, QueueCraft

order_placed = Event(EVENT, Order)


async def make_queue(url: str) -> None:
    """As a worker would."""
    async with QueueCraft(url) as qc:
        await qc.admin.declare(QUEUE, order_placed.name)


async def publish_singly(messages: int, *, pace: Pace[Order]) -> Measurement:
    payloads = orders(Order, messages)
    with place() as url:
        await make_queue(url)
        async with QueueCraft(url) as qc:

            async def publish(order: Order) -> None:
                await qc.publish(order_placed, order)

            measurement = await timed(pace(publish, payloads), messages)
        await verify_depth(url, QUEUE, messages)
    return measurement


async def send_singly(messages: int) -> Measurement:
    """Straight to the queue, as most others publish."""
    payloads = orders(Order, messages)
    billing = Queue(QUEUE, Order)
    with place() as url:
        await make_queue(url)
        async with QueueCraft(url) as qc:

            async def send(order: Order) -> None:
                await qc.send(billing, order)

            measurement = await timed(in_flight(send, payloads), messages)
        await verify_depth(url, QUEUE, messages)
    return measurement


async def publish_many(messages: int) -> Measurement:
    payloads = orders(Order, messages)
    with place() as url:
        await make_queue(url)
        async with QueueCraft(url) as qc:
            measurement = await timed(in_batches(qc, order_placed, payloads), messages)
        await verify_depth(url, QUEUE, messages)
    return measurement


async def consume(messages: int, **settings: Any) -> Measurement:
    """`settings` are those of the worker."""
    stretch = Stretch(messages)
    with place() as url:
        await make_queue(url)
        async with QueueCraft(url) as qc:
            await in_batches(qc, order_placed, orders(Order, messages))
        async with QueueCraft(url) as qc:
            worker = qc.worker(QUEUE, **settings)

            @worker.on(order_placed)
            async def charge(order: Order) -> None:
                stretch.add(order)

            await worker.start()
            await stretch.done.wait()
        await verify_depth(url, QUEUE, 0)
    return stretch.measurement(Order)


def case(name: str, run: Callable[[int], Awaitable[Measurement]]) -> Case:
    return Case(name=name, group="rabbitmq", contender="QueueCraft", run=run)


CASES = (
    case("publish_many, batches of 500", publish_many),
    case("publish by topic, 100 in flight", partial(publish_singly, pace=in_flight)),
    case("publish, 100 in flight", send_singly),
    case("publish, one at a time", partial(publish_singly, pace=one_at_a_time)),
    case(
        "consume, 100 handlers",
        partial(consume, concurrency=IN_FLIGHT, prefetch=PREFETCH),
    ),
    case("consume, 8 handlers", partial(consume, concurrency=8, prefetch=PREFETCH)),
    case("consume, 1 handler", partial(consume, concurrency=1, prefetch=PREFETCH)),
)
