"""aiormq, the bare client under aio-pika, FastStream and Taskiq: what a framework could reach.

Mandatory and confirmed, as in its README; `wait=False` leaves out waiting for the socket to drain
before waiting for the confirmation, and is run as well. It starts an asyncio task for each
delivery; the handler decodes the order with msgspec, then acks it alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import aiormq
import msgspec

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

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Order).decode


def publisher(
    channel: Any, *, wait: bool, exchange: str = "", routing_key: str = QUEUE
) -> Callable[[Order], Awaitable[None]]:
    async def publish(order: Order) -> None:
        await channel.basic_publish(
            encode(order),
            exchange=exchange,
            routing_key=routing_key,
            properties=aiormq.spec.Basic.Properties(
                content_type="application/json", delivery_mode=2
            ),
            mandatory=True,
            wait=wait,
        )

    return publish


async def publish(messages: int, *, pace: Pace[Order], wait: bool = True) -> Measurement:
    payloads = orders(Order, messages)
    with place() as url:
        connection = await aiormq.connect(url)
        try:
            channel = await connection.channel()
            await channel.queue_declare(QUEUE, durable=True)
            measurement = await timed(pace(publisher(channel, wait=wait), payloads), messages)
        finally:
            await connection.close()
        await verify_depth(url, QUEUE, messages)
    return measurement


async def publish_by_topic(messages: int, *, wait: bool = True) -> Measurement:
    """Through a topic exchange, as QueueCraft publishes events."""
    payloads = orders(Order, messages)
    with place() as url:
        connection = await aiormq.connect(url)
        try:
            channel = await connection.channel()
            await channel.exchange_declare("events", exchange_type="topic", durable=True)
            await channel.queue_declare(QUEUE, durable=True)
            await channel.queue_bind(QUEUE, "events", EVENT)
            publish = publisher(channel, wait=wait, exchange="events", routing_key=EVENT)
            measurement = await timed(in_flight(publish, payloads), messages)
        finally:
            await connection.close()
        await verify_depth(url, QUEUE, messages)
    return measurement


async def consume(messages: int, *, wait: bool = True) -> Measurement:
    stretch = Stretch(messages)
    acked = 0
    all_acked = asyncio.Event()

    async def charge(message: Any) -> None:
        nonlocal acked
        stretch.add(decode(message.body))
        await message.channel.basic_ack(message.delivery_tag, wait=wait)
        acked += 1
        if acked == messages:
            all_acked.set()

    with place() as url:
        connection = await aiormq.connect(url)
        try:
            channel = await connection.channel()
            await channel.queue_declare(QUEUE, durable=True)
            await in_flight(publisher(channel, wait=False), orders(Order, messages))
            await channel.basic_qos(prefetch_count=PREFETCH)
            await channel.basic_consume(QUEUE, charge)
            await all_acked.wait()
            await channel.close()
        finally:
            await connection.close()
        await verify_depth(url, QUEUE, 0)
    return stretch.measurement(Order)


def case(name: str, run: Callable[[int], Awaitable[Measurement]]) -> Case:
    return Case(name=name, group="rabbitmq", contender="aiormq", run=run)


CASES = (
    case("publish, 100 in flight", partial(publish, pace=in_flight)),
    case("publish, 100 in flight, wait=False", partial(publish, pace=in_flight, wait=False)),
    case("publish by topic, 100 in flight", publish_by_topic),
    case("publish by topic, 100 in flight, wait=False", partial(publish_by_topic, wait=False)),
    case("publish, one at a time", partial(publish, pace=one_at_a_time)),
    case("consume", consume),
    case("consume, wait=False", partial(consume, wait=False)),
)
