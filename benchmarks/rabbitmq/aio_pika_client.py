"""aio-pika: a robust connection, its channel confirming, `publish` mandatory, as by default.

`queue.consume` starts an asyncio task for each delivery; `message.process()` acks when the block
is left. Orders are encoded and decoded by msgspec.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import aio_pika
import msgspec

from benchmarks.harness import Case, Measurement
from benchmarks.order import Order, orders
from benchmarks.rabbitmq.broker import place, verify_depth
from benchmarks.rabbitmq.stretch import (
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


def publisher(channel: Any) -> Callable[[Order], Awaitable[None]]:
    exchange = channel.default_exchange

    async def publish(order: Order) -> None:
        message = aio_pika.Message(
            encode(order),
            content_type="application/json",
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        )
        await exchange.publish(message, routing_key=QUEUE)

    return publish


async def publish(messages: int, *, pace: Pace[Order]) -> Measurement:
    payloads = orders(Order, messages)
    with place() as url:
        async with await aio_pika.connect_robust(url) as connection:
            channel = await connection.channel()
            await channel.declare_queue(QUEUE, durable=True)
            measurement = await timed(pace(publisher(channel), payloads), messages)
        await verify_depth(url, QUEUE, messages)
    return measurement


async def consume(messages: int) -> Measurement:
    stretch = Stretch(messages)
    acked = 0
    all_acked = asyncio.Event()

    async def charge(message: Any) -> None:
        nonlocal acked
        async with message.process():
            stretch.add(decode(message.body))
        acked += 1
        if acked == messages:
            all_acked.set()

    with place() as url:
        async with await aio_pika.connect_robust(url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(QUEUE, durable=True)
            await in_flight(publisher(channel), orders(Order, messages))
            await channel.set_qos(prefetch_count=PREFETCH)
            await queue.consume(charge)
            await all_acked.wait()
            await channel.close()
        await verify_depth(url, QUEUE, 0)
    return stretch.measurement(Order)


def case(name: str, run: Callable[[int], Awaitable[Measurement]]) -> Case:
    return Case(name=name, group="rabbitmq", contender="aio-pika", run=run)


CASES = (
    case("publish, 100 in flight", partial(publish, pace=in_flight)),
    case("publish, one at a time", partial(publish, pace=one_at_a_time)),
    case("consume", consume),
)
