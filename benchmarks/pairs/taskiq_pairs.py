"""Taskiq: in memory, on RabbitMQ, on Redis with lists and with streams, and on Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from pydantic import BaseModel
from taskiq import InMemoryBroker
from taskiq.receiver import Receiver

from benchmarks.pairs.address import (
    kafka_group,
    kafka_servers,
    kafka_topic,
    redis_key,
    redis_server,
)
from benchmarks.pairs.kafka_clients import make_topic
from benchmarks.pairs.pair import Pair, nothing
from benchmarks.sent import IN_FLIGHT, PREFETCH, QUEUE, Handle, Publish


class Sent(BaseModel):
    """The order as Taskiq carries it."""

    at: float
    note: str = "x" * 190


Connect = Callable[[str], Any]
Prepare = Callable[[str], Awaitable[None]]


def in_rabbitmq(url: str) -> Any:
    from taskiq_aio_pika import AioPikaBroker, Queue, QueueType

    return AioPikaBroker(
        url,
        qos=PREFETCH,
        task_queues=[Queue(name=QUEUE, type=QueueType.CLASSIC)],
        dead_letter_queue=Queue(name=f"{QUEUE}.dead", type=QueueType.CLASSIC),
    )


def in_lists(url: str) -> Any:
    from taskiq_redis import ListQueueBroker

    return ListQueueBroker(redis_server(url), queue_name=redis_key(url))


def in_streams(url: str) -> Any:
    from taskiq_redis import RedisStreamBroker

    return RedisStreamBroker(
        redis_server(url),
        queue_name=redis_key(url),
        consumer_group_name="taskiq",
        xread_count=PREFETCH,
    )


def in_kafka(url: str) -> Any:
    return kafka_broker(kafka_servers(url), kafka_topic(url), kafka_group(url))


def kafka_broker(servers: str, topic: str, group: str) -> Any:
    """Idempotent, waiting for all replicas; from the beginning, with what aiokafka brings: its
    own partitioner and assignor are those of kafka-python, which do not work with it any more."""
    taskiq_aio_kafka: Any = import_module("taskiq_aio_kafka")  # not all that check types have it
    partitioner: Any = import_module("aiokafka.partitioner")
    assignors: Any = import_module("aiokafka.coordinator.assignors.roundrobin")
    broker = taskiq_aio_kafka.AioKafkaBroker(servers, kafka_topic=topic)
    broker.configure_producer(
        acks="all", enable_idempotence=True, partitioner=partitioner.DefaultPartitioner()
    )
    broker.configure_consumer(
        group_id=group,
        auto_offset_reset="earliest",
        partition_assignment_strategy=(assignors.RoundRobinPartitionAssignor,),
    )
    return broker


def charging(broker: Any, handle: Handle) -> Any:
    async def charge(order: Sent) -> None:
        handle(order.at)

    return broker.task("charge")(charge)


def publishing(task: Any) -> Publish:
    async def publish(at: float) -> None:
        await task.kiq(Sent(at=at))

    return publish


def pair(connect: Connect, prepare: Prepare = nothing) -> Pair:
    @asynccontextmanager
    async def publisher(url: str) -> AsyncGenerator[Publish]:
        broker = connect(url)
        task = charging(broker, lambda at: None)
        await broker.startup()
        yield publishing(task)
        await broker.shutdown()

    @asynccontextmanager
    async def worker(url: str, handle: Handle) -> AsyncGenerator[None]:
        broker = connect(url)
        charging(broker, handle)
        broker.is_worker_process = True
        ending = asyncio.Event()
        with ThreadPoolExecutor() as threads:
            receiver = Receiver(broker, threads, max_async_tasks=IN_FLIGHT)
            listening = asyncio.create_task(receiver.listen(ending))
            yield
            ending.set()
            await listening
        await broker.shutdown()

    return Pair(publisher=publisher, worker=worker, prepare=prepare)


@asynccontextmanager
async def together(url: str, handle: Handle) -> AsyncGenerator[Publish]:
    broker = InMemoryBroker()
    task = charging(broker, handle)
    await broker.startup()
    yield publishing(task)
    await broker.wait_all()
    await broker.shutdown()


PAIRS = {
    "memory": Pair(together=together),
    "rabbitmq": pair(in_rabbitmq),
    "lists": pair(in_lists),
    "streams": pair(in_streams),
    "kafka": pair(in_kafka, make_topic),
}
