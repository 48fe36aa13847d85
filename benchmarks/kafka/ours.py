"""QueueCraft: typed, an event's topic, an idempotent producer; committed when handled.

Orders are msgspec Structs; their records have headers: the id, the event, the time and the type of
the content. The bare clients send none, but handle the same records as we do. What is handled is
committed beside the handlers, and out of order if they end so. A consumer has a hundred handlers at
once, or one, and holds up to a thousand records, twice what the others ask for at a time, so that
it can fetch while it handles.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from benchmarks.harness import Case, Measurement
from benchmarks.kafka.broker import Place, place, verify
from benchmarks.kafka.pace import Pace, in_flight, one_at_a_time, thousand_in_flight
from benchmarks.memory.ours import in_batches
from benchmarks.order import Order, orders
from benchmarks.rabbitmq.stretch import EVENT, IN_FLIGHT, QUEUE, Stretch, timed
from queuecraft import Event, QueueCraft

HELD = 1000
BATCH = 500

order_placed = Event(EVENT, Order)


async def make_queue(here: Place) -> None:
    """As a worker would."""
    async with QueueCraft(here.url) as qc:
        await qc.admin.declare(QUEUE, order_placed.name)
    here.await_topic()


async def fill(here: Place, messages: int) -> None:
    """Leave a topic full of orders, for whoever is to handle them."""
    await make_queue(here)
    async with QueueCraft(here.url) as qc:
        await in_batches(qc, order_placed, orders(Order, messages))


async def verify_depth(url: str, expected: int) -> None:
    async with QueueCraft(url) as qc:
        found = await qc.admin.inspect(QUEUE)
    verify((found.ready or 0) + (found.in_flight or 0), expected, "has")


async def publish_singly(messages: int, *, pace: Pace[Order]) -> Measurement:
    payloads = orders(Order, messages)
    with place() as here:
        await make_queue(here)
        async with QueueCraft(here.url) as qc:

            async def publish(order: Order) -> None:
                await qc.publish(order_placed, order)

            measurement = await timed(pace(publish, payloads), messages)
        await verify_depth(here.url, messages)
        here.verify_stored(messages)
    return measurement


async def publish_many(messages: int) -> Measurement:
    payloads = orders(Order, messages)
    with place() as here:
        await make_queue(here)
        async with QueueCraft(here.url) as qc:
            measurement = await timed(in_batches(qc, order_placed, payloads), messages)
        await verify_depth(here.url, messages)
        here.verify_stored(messages)
    return measurement


async def consume(messages: int, *, concurrency: int = 1, batch_size: int = 1) -> Measurement:
    stretch = Stretch(messages)

    async def charge(order: Order) -> None:
        stretch.add(order)

    async def charge_all(several: list[Order]) -> None:
        for order in several:
            stretch.add(order)

    with place() as here:
        await fill(here, messages)
        async with QueueCraft(here.url) as qc:
            worker = qc.worker(QUEUE, concurrency=concurrency, prefetch=HELD, batch_size=batch_size)
            if batch_size > 1:
                worker.on(order_placed, charge_all)
            else:
                worker.on(order_placed, charge)
            await worker.start()
            await stretch.done.wait()
        await verify_depth(here.url, 0)
        here.verify_committed(messages)
    return stretch.measurement(Order)


def case(name: str, run: Callable[[int], Awaitable[Measurement]]) -> Case:
    return Case(name=name, group="kafka", contender="QueueCraft", run=run)


CASES = (
    case("publish_many, batches of 500", publish_many),
    case("publish, 1000 in flight", partial(publish_singly, pace=thousand_in_flight)),
    case("publish, 100 in flight", partial(publish_singly, pace=in_flight)),
    case("publish, one at a time", partial(publish_singly, pace=one_at_a_time)),
    case("consume, 100 handlers", partial(consume, concurrency=IN_FLIGHT)),
    case("consume, 1 handler", partial(consume, concurrency=1)),
    case(f"consume, batches of {BATCH}", partial(consume, batch_size=BATCH)),
)
