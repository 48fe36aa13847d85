"""Taskiq with taskiq-aio-pika: confirmed, mandatory and persistent by default, acked when run.

Its queue is a quorum queue unless told otherwise; here it is a classic one, as everybody's. The
worker is a `Receiver` as `taskiq worker` makes one, with a hundred tasks at once and `qos=100`.
Results are thrown away. The order is a pydantic model, the fastest typed payload it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from taskiq.receiver import Receiver
from taskiq_aio_pika import AioPikaBroker, Queue, QueueType

from benchmarks.harness import Case, Measurement
from benchmarks.memory.taskiq_broker import OrderModel
from benchmarks.order import orders
from benchmarks.rabbitmq.broker import place, verify_depth
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


def connecting(url: str) -> Any:
    return AioPikaBroker(
        url,
        qos=PREFETCH,
        task_queues=[Queue(name=QUEUE, type=QueueType.CLASSIC)],
        dead_letter_queue=Queue(name=f"{QUEUE}.dead", type=QueueType.CLASSIC),
    )


async def publish(messages: int, *, pace: Pace[OrderModel]) -> Measurement:
    payloads = orders(OrderModel, messages)

    async def charge(order: OrderModel) -> None: ...

    with place() as url:
        broker = connecting(url)
        task = broker.task("charge")(charge)
        await broker.startup()
        try:
            measurement = await timed(pace(task.kiq, payloads), messages)
        finally:
            await broker.shutdown()
        await verify_depth(url, QUEUE, messages)
    return measurement


async def consume(messages: int) -> Measurement:
    stretch = Stretch(messages)

    async def charge(order: OrderModel) -> None:
        stretch.add(order)

    with place() as url:
        publishing = connecting(url)
        await publishing.startup()
        await in_flight(publishing.task("charge")(charge).kiq, orders(OrderModel, messages))
        await publishing.shutdown()
        broker = connecting(url)
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
        await verify_depth(url, QUEUE, 0)
    return stretch.measurement(OrderModel)


def case(name: str, run: Callable[[int], Awaitable[Measurement]]) -> Case:
    return Case(name=name, group="rabbitmq", contender="Taskiq", run=run)


CASES = (
    case("publish, 100 in flight", partial(publish, pace=in_flight)),
    case("publish, one at a time", partial(publish, pace=one_at_a_time)),
    case("consume", consume),
)
