"""Taskiq's InMemoryBroker: encoded, decoded, validated and called, with no queue in between.

The broker its documentation recommends for one process. `kiq` hands the message straight to the
receiver, which runs the task and keeps its result; nothing is acknowledged or redelivered. Both
of its modes are run and comparisons take the faster: `await_inplace=True`, where `kiq` returns
when the task has run, and the default, where it starts an asyncio task that `wait_all` waits for.
The order is a pydantic model, the fastest typed payload Taskiq has (a dataclass costs it a
quarter of its throughput; Structs it cannot carry).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any

from pydantic import BaseModel
from taskiq import InMemoryBroker

from benchmarks.harness import Case, Measurement
from benchmarks.order import Tally, orders

GATHERED = 100


class OrderModel(BaseModel):
    """The order as Taskiq carries it."""

    id: str
    customer: str
    email: str
    currency: str
    total: float
    quantity: int
    paid: bool
    placed_at: str
    skus: list[str]
    note: str


Publish = Callable[[Any, Sequence[OrderModel]], Awaitable[None]]


async def one_at_a_time(task: Any, payloads: Sequence[OrderModel]) -> None:
    for payload in payloads:
        await task.kiq(payload)


async def gathered(task: Any, payloads: Sequence[OrderModel]) -> None:
    for start in range(0, len(payloads), GATHERED):
        together = payloads[start : start + GATHERED]
        await asyncio.gather(*(task.kiq(payload) for payload in together))


async def run(messages: int, *, publish: Publish, await_inplace: bool) -> Measurement:
    tally = Tally(messages)

    async def charge(order: OrderModel) -> None:
        tally.add(order)

    broker = InMemoryBroker(await_inplace=await_inplace)
    task = broker.task("charge")(charge)
    payloads = orders(OrderModel, messages)
    await broker.startup()
    try:
        started = perf_counter()
        await publish(task, payloads)
        await broker.wait_all()
        seconds = perf_counter() - started
    finally:
        await broker.shutdown()
    tally.verify(OrderModel)
    return Measurement(messages, seconds)


def case(name: str, publish: Publish, *, await_inplace: bool) -> Case:
    how = partial(run, publish=publish, await_inplace=await_inplace)
    return Case(name=name, group="memory", contender="Taskiq", run=how)


CASES = (
    case("one at a time, in place", one_at_a_time, await_inplace=True),
    case("one at a time, as tasks", one_at_a_time, await_inplace=False),
    case("100 gathered, in place", gathered, await_inplace=True),
    case("100 gathered, as tasks", gathered, await_inplace=False),
)
