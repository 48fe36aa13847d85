"""FastStream: confirmed and mandatory by default, `persist=True`, acked when handled.

Orders are msgspec Structs with its own MsgSpecSerializer; pydantic models are as fast here. Its log
of every message is off. A subscriber runs as many handlers at once as the prefetch allows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from fast_depends.msgspec import MsgSpecSerializer
from faststream.rabbit import Channel, ExchangeType, RabbitBroker, RabbitExchange, RabbitQueue

from benchmarks.harness import Case, Measurement
from benchmarks.order import Order, orders
from benchmarks.rabbitmq.broker import place, verify_depth
from benchmarks.rabbitmq.stretch import (
    EVENT,
    PREFETCH,
    QUEUE,
    Pace,
    Stretch,
    in_flight,
    one_at_a_time,
    timed,
)

PATIENCE = 20.0

billing = RabbitQueue(QUEUE, durable=True)


def connecting(url: str) -> Any:
    return RabbitBroker(
        url,
        default_channel=Channel(prefetch_count=PREFETCH),
        serializer=MsgSpecSerializer(),
        graceful_timeout=PATIENCE,
        logger=None,
    )


def publisher(broker: Any) -> Callable[[Order], Awaitable[None]]:
    async def publish(order: Order) -> None:
        await broker.publish(order, QUEUE, persist=True)

    return publish


async def publish(messages: int, *, pace: Pace[Order]) -> Measurement:
    payloads = orders(Order, messages)
    with place() as url:
        async with connecting(url) as broker:
            await broker.declare_queue(billing)
            measurement = await timed(pace(publisher(broker), payloads), messages)
        await verify_depth(url, QUEUE, messages)
    return measurement


async def publish_by_topic(messages: int) -> Measurement:
    """Through a topic exchange, as QueueCraft publishes events."""
    payloads = orders(Order, messages)
    events = RabbitExchange("events", type=ExchangeType.TOPIC, durable=True)
    with place() as url:
        async with connecting(url) as broker:
            exchange = await broker.declare_exchange(events)
            await (await broker.declare_queue(billing)).bind(exchange, EVENT)

            async def publish(order: Order) -> None:
                await broker.publish(order, routing_key=EVENT, exchange=events, persist=True)

            measurement = await timed(in_flight(publish, payloads), messages)
        await verify_depth(url, QUEUE, messages)
    return measurement


async def consume(messages: int) -> Measurement:
    stretch = Stretch(messages)

    async def charge(order: Order) -> None:
        stretch.add(order)

    with place() as url:
        async with connecting(url) as broker:
            await broker.declare_queue(billing)
            await in_flight(publisher(broker), orders(Order, messages))
        worker = connecting(url)
        worker.subscriber(billing)(charge)
        async with worker:
            await worker.start()
            await stretch.done.wait()
        await verify_depth(url, QUEUE, 0)
    return stretch.measurement(Order)


def case(name: str, run: Callable[[int], Awaitable[Measurement]]) -> Case:
    return Case(name=name, group="rabbitmq", contender="FastStream", run=run)


CASES = (
    case("publish, 100 in flight", partial(publish, pace=in_flight)),
    case("publish by topic, 100 in flight", publish_by_topic),
    case("publish, one at a time", partial(publish, pace=one_at_a_time)),
    case("consume", consume),
)
