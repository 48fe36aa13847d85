"""QueueCraft with five middlewares around its handler, and without."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from time import perf_counter
from typing import Any

from benchmarks.harness import Case, Measurement
from benchmarks.memory.ours import BATCH, in_batches
from benchmarks.order import Order, Tally, orders
from queuecraft import Event, Message, QueueCraft
from queuecraft.middleware import Logging, Middleware, RateLimit, Timeout, Tracing, Validation

LONGER = 5

order_placed = Event("order.placed", Order)


NOTHING: nullcontext[None] = nullcontext()


def no_span(message: Message[Any]) -> nullcontext[None]:
    return NOTHING


def priced(order: Order) -> None:
    if order.total < 0:
        raise ValueError("an order costs something")


def five() -> Sequence[Middleware]:
    return (
        Logging(level=logging.DEBUG),
        Tracing(no_span),
        Timeout(30),
        Validation(priced),
        RateLimit(1e9, burst=1000),
    )


async def run(messages: int, *, middleware: Sequence[Middleware] = ()) -> Measurement:
    messages *= LONGER
    tally = Tally(messages)

    async def charge(order: Order) -> None:
        tally.add(order)

    qc = QueueCraft("local://")
    worker = qc.worker("billing", concurrency=1, prefetch=BATCH, middleware=middleware)
    worker.on(order_placed)(charge)
    payloads = orders(Order, messages)
    async with qc:
        await worker.start()
        started = perf_counter()
        await in_batches(qc, order_placed, payloads)
        await tally.done.wait()
        took = perf_counter() - started
    tally.verify(Order)
    return Measurement(messages, took)


def case(name: str, *middleware: Middleware) -> Case:
    return Case(
        name=name,
        group="middleware",
        contender="QueueCraft",
        run=partial(run, middleware=middleware),
    )


CASES = (
    case("no middleware"),
    case("five", *five()),
    *(case(f"{type(each).__name__} alone", each) for each in five()),
)
