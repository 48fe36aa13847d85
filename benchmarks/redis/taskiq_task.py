"""Taskiq with taskiq-redis: its list broker, which acks nothing, and its stream broker, which does.

The worker is a `Receiver` as `taskiq worker` makes one, with a hundred tasks at once; the stream is
read a hundred entries at a time. Results are thrown away. The order is a pydantic model, the
fastest typed payload it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from taskiq.receiver import Receiver
from taskiq_redis import ListQueueBroker, RedisStreamBroker

from benchmarks.harness import Case, Measurement
from benchmarks.memory.taskiq_broker import OrderModel
from benchmarks.order import orders
from benchmarks.rabbitmq.stretch import (
    IN_FLIGHT,
    PREFETCH,
    QUEUE,
    Pace,
    Stretch,
    in_flight,
    one_at_a_time,
    timed,
)
from benchmarks.redis.broker import Place, place

GROUP = "taskiq"


def lists(here: Place) -> Any:
    return ListQueueBroker(here.server, queue_name=here.key())


def streams(here: Place) -> Any:
    return RedisStreamBroker(
        here.server, queue_name=here.key(), consumer_group_name=GROUP, xread_count=PREFETCH
    )


async def publish(messages: int, *, pace: Pace[OrderModel]) -> Measurement:
    payloads = orders(OrderModel, messages)

    async def charge(order: OrderModel) -> None: ...

    with place() as here:
        broker = lists(here)
        task = broker.task("charge")(charge)
        await broker.startup()
        try:
            measurement = await timed(pace(task.kiq, payloads), messages)
        finally:
            await broker.shutdown()
        here.verify_count("LLEN", QUEUE, messages)
    return measurement


async def work(connecting: Callable[[Place], Any], here: Place, messages: int) -> Measurement:
    """Fill the queue and empty it."""
    stretch = Stretch(messages)

    async def charge(order: OrderModel) -> None:
        stretch.add(order)

    publishing = connecting(here)
    await publishing.startup()
    await in_flight(publishing.task("charge")(charge).kiq, orders(OrderModel, messages))
    await publishing.shutdown()
    broker = connecting(here)
    broker.task("charge")(charge)
    broker.is_worker_process = True
    ending = asyncio.Event()
    with ThreadPoolExecutor() as threads:
        receiver = Receiver(broker, threads, max_async_tasks=IN_FLIGHT)
        listening = asyncio.create_task(receiver.listen(ending))
        await stretch.done.wait()
        ending.set()
        await listening
    await broker.shutdown()
    return stretch.measurement(OrderModel)


async def consume_list(messages: int) -> Measurement:
    with place() as here:
        measurement = await work(lists, here, messages)
        here.verify_count("LLEN", QUEUE, 0)
    return measurement


async def consume_stream(messages: int) -> Measurement:
    with place() as here:
        measurement = await work(streams, here, messages)
        here.verify_acked(QUEUE, GROUP, messages)
    return measurement


def case(name: str, run: Callable[[int], Awaitable[Measurement]]) -> Case:
    return Case(name=name, group="redis", contender="Taskiq", run=run)


CASES = (
    case("publish, 100 in flight", partial(publish, pace=in_flight)),
    case("publish, one at a time", partial(publish, pace=one_at_a_time)),
    case("consume lists, 100 handlers", consume_list),
    case("consume streams, 100 handlers", consume_stream),
)
