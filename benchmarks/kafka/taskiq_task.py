"""Taskiq with taskiq-aio-kafka, on aiokafka.

Its producer is idempotent and waits for all replicas, as `configure_producer` has it; its consumer
commits in the background what it has fetched, as it does by default: what the broker gives out has
no acknowledgement. The worker is a `Receiver` as `taskiq worker` makes one, with a hundred tasks at
once. Results are thrown away. The order is a pydantic model, the fastest typed payload it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from taskiq.receiver import Receiver

from benchmarks.harness import Case, Measurement
from benchmarks.kafka.broker import Place, place
from benchmarks.kafka.pace import Pace, in_flight, one_at_a_time
from benchmarks.memory.taskiq_broker import OrderModel
from benchmarks.order import orders
from benchmarks.pairs.taskiq_pairs import kafka_broker
from benchmarks.rabbitmq.stretch import IN_FLIGHT, Stretch, timed


def connecting(here: Place) -> Any:
    return kafka_broker(here.servers, here.topic, here.group)


async def publish(messages: int, *, pace: Pace[OrderModel]) -> Measurement:
    payloads = orders(OrderModel, messages)

    async def charge(order: OrderModel) -> None: ...

    with place() as here:
        here.make_topic()
        broker = connecting(here)
        task = broker.task("charge")(charge)
        await broker.startup()
        try:
            measurement = await timed(pace(task.kiq, payloads), messages)
        finally:
            await broker.shutdown()
        here.verify_stored(messages)
    return measurement


async def consume(messages: int) -> Measurement:
    stretch = Stretch(messages)

    async def charge(order: OrderModel) -> None:
        stretch.add(order)

    with place() as here:
        here.make_topic()
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
        here.verify_committed(messages)
    return stretch.measurement(OrderModel)


def case(name: str, run: Callable[[int], Awaitable[Measurement]]) -> Case:
    return Case(name=name, group="kafka", contender="Taskiq", run=run)


CASES = (
    case("publish, 100 in flight", partial(publish, pace=in_flight)),
    case("publish, one at a time", partial(publish, pace=one_at_a_time)),
    case("consume, 100 handlers", consume),
)
