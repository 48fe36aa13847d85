"""FastStream: on RabbitMQ, on Redis with lists and with streams, and on Kafka."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fast_depends.msgspec import MsgSpecSerializer

from benchmarks.pairs.address import (
    kafka_group,
    kafka_servers,
    kafka_topic,
    redis_key,
    redis_server,
)
from benchmarks.pairs.kafka_clients import make_topic
from benchmarks.pairs.pair import Pair, nothing
from benchmarks.sent import IN_FLIGHT, PREFETCH, QUEUE, Handle, Publish, Sent

PATIENCE = 20.0

Subscribe = Callable[[str, Handle], Any]
"""A broker that handles."""
Connect = Callable[[str], tuple[Any, Publish]]
"""A broker that publishes, and how."""


def taking(handle: Handle) -> Any:
    async def take(order: Sent) -> None:
        handle(order.at)

    return take


def pair(connect: Connect, subscribe: Subscribe, prepare: Any = nothing) -> Pair:
    @asynccontextmanager
    async def publisher(url: str) -> AsyncGenerator[Publish]:
        broker, publish = connect(url)
        async with broker:
            yield publish

    @asynccontextmanager
    async def worker(url: str, handle: Handle) -> AsyncGenerator[None]:
        broker = subscribe(url, handle)
        async with broker:
            await broker.start()
            yield

    return Pair(publisher=publisher, worker=worker, prepare=prepare)


# RabbitMQ


def rabbit(url: str) -> Any:
    from faststream.rabbit import Channel, RabbitBroker

    return RabbitBroker(
        url,
        default_channel=Channel(prefetch_count=PREFETCH),
        serializer=MsgSpecSerializer(),
        graceful_timeout=PATIENCE,
        logger=None,
    )


def to_rabbit(url: str) -> tuple[Any, Publish]:
    broker = rabbit(url)

    async def publish(at: float) -> None:
        await broker.publish(Sent(at), QUEUE, persist=True)

    return broker, publish


def from_rabbit(url: str, handle: Handle) -> Any:
    from faststream.rabbit import RabbitQueue

    broker = rabbit(url)
    broker.subscriber(RabbitQueue(QUEUE, durable=True))(taking(handle))
    return broker


async def rabbit_queue(url: str) -> None:
    from faststream.rabbit import RabbitQueue

    async with rabbit(url) as broker:
        await broker.declare_queue(RabbitQueue(QUEUE, durable=True))


# Redis


def redis(url: str) -> Any:
    from faststream.redis import RedisBroker

    broker: Any = RedisBroker  # whose types do not know that no logger means no log
    return broker(
        redis_server(url), serializer=MsgSpecSerializer(), graceful_timeout=PATIENCE, logger=None
    )


def to_redis(url: str, kind: str) -> tuple[Any, Publish]:
    broker = redis(url)
    where = {kind: redis_key(url)}

    async def publish(at: float) -> None:
        await broker.publish(Sent(at), **where)

    return broker, publish


def from_list(url: str, handle: Handle) -> Any:
    broker = redis(url)
    broker.subscriber(list=redis_key(url), max_workers=IN_FLIGHT)(taking(handle))
    return broker


def from_stream(url: str, handle: Handle) -> Any:
    from faststream import AckPolicy
    from faststream.redis import StreamSub

    broker = redis(url)
    source = StreamSub(redis_key(url), group="billing", consumer="one", max_records=PREFETCH)
    policy = AckPolicy.REJECT_ON_ERROR
    broker.subscriber(stream=source, max_workers=IN_FLIGHT, ack_policy=policy)(taking(handle))
    return broker


async def stream_group(url: str) -> None:
    """From its beginning: FastStream would make one that begins at the end."""
    from redis.asyncio import Redis

    client: Any = Redis.from_url(redis_server(url))
    await client.xgroup_create(redis_key(url), "billing", id="0", mkstream=True)
    await client.aclose()


# Kafka


def kafka(url: str) -> Any:
    from faststream.confluent import KafkaBroker

    return KafkaBroker(
        kafka_servers(url),
        acks="all",
        enable_idempotence=True,
        allow_auto_create_topics=False,
        serializer=MsgSpecSerializer(),
        graceful_timeout=PATIENCE,
        logger=None,
    )


def to_kafka(url: str) -> tuple[Any, Publish]:
    broker = kafka(url)
    topic = kafka_topic(url)

    async def publish(at: float) -> None:
        await broker.publish(Sent(at), topic)

    return broker, publish


def from_kafka(url: str, handle: Handle) -> Any:
    from faststream import AckPolicy

    broker = kafka(url)
    broker.subscriber(
        kafka_topic(url),
        group_id=kafka_group(url),
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.ACK,
    )(taking(handle))
    return broker


PAIRS = {
    "rabbitmq": pair(to_rabbit, from_rabbit, rabbit_queue),
    "lists": pair(lambda url: to_redis(url, "list"), from_list),
    "streams": pair(lambda url: to_redis(url, "stream"), from_stream, stream_group),
    "kafka": pair(to_kafka, from_kafka, make_topic),
}
