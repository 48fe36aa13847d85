"""QueueCraft on its in-memory queue: encoded, routed, decoded and validated, acked when handled.

Every way of publishing has its worker in the same event loop. `publish` and `publish_many` return
when the queue has the messages; a handler that raised would be retried, then dead-lettered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Protocol, TypeVar

from benchmarks.harness import Case, Measurement
from benchmarks.order import Order, OrderRecord, Tally, orders
from queuecraft import Event, Message, QueueCraft

T = TypeVar("T")

BATCH = 500
GATHERED = 100

Handle = Callable[[Message[Any]], Awaitable[object]]
Publish = Callable[[QueueCraft, Event[T], Sequence[T]], Awaitable[None]]


class Running(Protocol):
    """What is needed of a worker here."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


order_placed = Event("order.placed", Order)
order_recorded = Event("order.recorded", OrderRecord)


async def in_batches(qc: QueueCraft, event: Event[T], payloads: Sequence[T]) -> None:
    for start in range(0, len(payloads), BATCH):
        await qc.publish_many(event, payloads[start : start + BATCH])


async def one_at_a_time(qc: QueueCraft, event: Event[T], payloads: Sequence[T]) -> None:
    for payload in payloads:
        await qc.publish(event, payload)


async def gathered(qc: QueueCraft, event: Event[T], payloads: Sequence[T]) -> None:
    for start in range(0, len(payloads), GATHERED):
        together = payloads[start : start + GATHERED]
        await asyncio.gather(*(qc.publish(event, payload) for payload in together))


def passing_on(handle: Handle) -> Handle:
    """A middleware that does nothing, so that only the cost of having one is left."""

    async def handle_and_return(message: Message[Any]) -> object:
        return await handle(message)

    return handle_and_return


async def structs(messages: int, *, publish: Publish[Order], **settings: Any) -> Measurement:
    """Orders as msgspec Structs; `settings` are those of the worker."""
    tally = Tally(messages)

    async def charge(order: Order) -> None:
        tally.add(order)

    qc = QueueCraft("local://")
    worker = qc.worker("billing", **settings)
    worker.on(order_placed)(charge)
    publishing = partial(publish, qc, order_placed, orders(Order, messages))
    seconds = await timed(qc, worker, publishing, tally)
    tally.verify(Order)
    return Measurement(messages, seconds)


async def records(messages: int, *, publish: Publish[OrderRecord], **settings: Any) -> Measurement:
    """Orders as dataclasses."""
    tally = Tally(messages)

    async def charge(order: OrderRecord) -> None:
        tally.add(order)

    qc = QueueCraft("local://")
    worker = qc.worker("billing", **settings)
    worker.on(order_recorded)(charge)
    publishing = partial(publish, qc, order_recorded, orders(OrderRecord, messages))
    seconds = await timed(qc, worker, publishing, tally)
    tally.verify(OrderRecord)
    return Measurement(messages, seconds)


async def timed(
    qc: QueueCraft, worker: Running, publishing: Callable[[], Awaitable[None]], tally: Tally
) -> float:
    """Seconds from the first publish to the last handler's end, with the worker running."""
    async with qc:
        await worker.start()
        started = perf_counter()
        await publishing()
        await tally.done.wait()
        seconds = perf_counter() - started
        await worker.stop()
    return seconds


def case(name: str, run: Callable[[int], Awaitable[Measurement]]) -> Case:
    return Case(name=name, group="memory", contender="QueueCraft", run=run)


CASES = (
    case(
        "publish_many, concurrency 1",
        partial(structs, publish=in_batches, concurrency=1, prefetch=BATCH),
    ),
    case(
        "publish_many, concurrency 8",
        partial(structs, publish=in_batches, concurrency=8, prefetch=BATCH),
    ),
    case(
        "publish_many, five middlewares",
        partial(
            structs,
            publish=in_batches,
            concurrency=1,
            prefetch=BATCH,
            middleware=[passing_on] * 5,
        ),
    ),
    case(
        "publish_many, dataclass",
        partial(records, publish=in_batches, concurrency=1, prefetch=BATCH),
    ),
    case("publish_many, worker defaults", partial(structs, publish=in_batches)),
    case(
        "publish, one at a time",
        partial(structs, publish=one_at_a_time, concurrency=1, prefetch=100),
    ),
    case("publish, worker defaults", partial(structs, publish=one_at_a_time)),
    case(
        "publish, 100 gathered",
        partial(structs, publish=gathered, concurrency=GATHERED, prefetch=GATHERED),
    ),
)
