"""QueueCraft on its queue in a file: publishing with nobody there, and handling what waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from benchmarks.file.ours import Publish, in_flight
from benchmarks.harness import Case, Measurement
from benchmarks.memory.ours import BATCH, in_batches, one_at_a_time
from benchmarks.order import Order, WrongCount, orders
from benchmarks.place import in_a_file
from benchmarks.rabbitmq.stretch import EVENT, QUEUE, Stretch, timed
from queuecraft import Event, QueueCraft

order_placed = Event(EVENT, Order)


async def verify_depth(qc: QueueCraft, expected: int) -> None:
    found = await qc.admin.inspect(QUEUE)
    held = (found.ready or 0) + (found.in_flight or 0)
    if held != expected:
        raise WrongCount(f"the file holds {held} messages, not {expected}")


async def publish(messages: int, *, pace: Publish) -> Measurement:
    payloads = orders(Order, messages)
    with in_a_file() as url:
        async with QueueCraft(url) as qc:
            await qc.admin.declare(QUEUE, order_placed.name)
            measurement = await timed(pace(qc, order_placed, payloads), messages)
            await verify_depth(qc, messages)
    return measurement


async def consume(messages: int, *, concurrency: int) -> Measurement:
    stretch = Stretch(messages)
    with in_a_file() as url:
        async with QueueCraft(url) as qc:
            await qc.admin.declare(QUEUE, order_placed.name)
            await in_batches(qc, order_placed, orders(Order, messages))
        async with QueueCraft(url) as qc:
            worker = qc.worker(QUEUE, concurrency=concurrency, prefetch=BATCH)

            @worker.on(order_placed)
            async def charge(order: Order) -> None:
                stretch.add(order)

            await worker.start()
            await stretch.done.wait()
        async with QueueCraft(url) as qc:
            await verify_depth(qc, 0)
    return stretch.measurement(Order)


def case(name: str, run: Callable[[int], Awaitable[Measurement]]) -> Case:
    return Case(name=name, group="file", contender="QueueCraft", run=run)


CASES = (
    case("publish_many, batches of 500", partial(publish, pace=in_batches)),
    case("publish, 100 in flight", partial(publish, pace=in_flight)),
    case("publish, one at a time", partial(publish, pace=one_at_a_time)),
    case("consume, 1 handler", partial(consume, concurrency=1)),
    case("consume, 100 handlers", partial(consume, concurrency=100)),
)
