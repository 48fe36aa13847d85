"""aio-pika, the client that others build on, and pika, which blocks."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.pairs.in_process import awaited
from benchmarks.pairs.pair import Pair
from benchmarks.sent import PREFETCH, QUEUE, Handle, Publish, Sent, decode, encode

# aio-pika


@asynccontextmanager
async def worker(url: str, handle: Handle) -> AsyncGenerator[None]:
    import aio_pika

    async def take(message: Any) -> None:
        async with message.process():
            handle(decode(message.body).at)

    async with await aio_pika.connect_robust(url) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=PREFETCH)
        queue = await channel.declare_queue(QUEUE, durable=True)
        await queue.consume(take)
        yield


@asynccontextmanager
async def publisher(url: str) -> AsyncGenerator[Publish]:
    import aio_pika

    async with await aio_pika.connect_robust(url) as connection:
        channel = await connection.channel()
        await channel.declare_queue(QUEUE, durable=True)
        exchange = channel.default_exchange

        async def publish(at: float) -> None:
            message = aio_pika.Message(
                encode(Sent(at)),
                content_type="application/json",
                delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            )
            await exchange.publish(message, routing_key=QUEUE)

        yield publish


# pika


@asynccontextmanager
async def blocking_worker(url: str, handle: Handle) -> AsyncGenerator[None]:
    import pika

    def take(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        handle(decode(body).at)
        channel.basic_ack(method.delivery_tag)

    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_declare(QUEUE, durable=True)
    channel.basic_qos(prefetch_count=PREFETCH)
    channel.basic_consume(QUEUE, take)
    threading.Thread(target=channel.start_consuming, daemon=True).start()
    yield


@asynccontextmanager
async def blocking_publisher(url: str) -> AsyncGenerator[Publish]:
    import pika

    properties = pika.BasicProperties(content_type="application/json", delivery_mode=2)
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_declare(QUEUE, durable=True)
        channel.confirm_delivery()
        yield awaited(
            lambda at: channel.basic_publish(
                "", QUEUE, encode(Sent(at)), properties, mandatory=True
            )
        )


PAIRS = {
    "aio-pika": Pair(publisher=publisher, worker=worker),
    "pika": Pair(publisher=blocking_publisher, worker=blocking_worker, flight=1),
}
