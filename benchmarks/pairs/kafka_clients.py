"""confluent-kafka, the client under QueueCraft and FastStream, and aiokafka, which is Python."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from time import monotonic
from typing import Any

from benchmarks.pairs.address import kafka_group, kafka_servers, kafka_topic
from benchmarks.pairs.in_process import awaited
from benchmarks.pairs.pair import Pair
from benchmarks.sent import Handle, Publish, Sent, decode, encode

PARTITIONS = 4  # as QueueCraft makes them
PATIENCE = 20.0


async def make_topic(url: str) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    servers: dict[str, str | int | float | bool] = {"bootstrap.servers": kafka_servers(url)}
    topic = kafka_topic(url)
    admin = AdminClient(servers)
    for made in admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS)]).values():
        made.result(PATIENCE)
    producer = Producer(servers)
    deadline = monotonic() + PATIENCE
    while monotonic() < deadline:  # it is told of before its leaders are
        found = producer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
        if len(found) == PARTITIONS and all(each.leader >= 0 for each in found.values()):
            return
        await asyncio.sleep(0.05)


# confluent-kafka


@asynccontextmanager
async def publisher(url: str) -> AsyncGenerator[Publish]:
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": kafka_servers(url), "acks": "all", "enable.idempotence": True}
    )
    topic = kafka_topic(url)

    def send(at: float) -> None:
        while True:
            try:
                producer.produce(topic, encode(Sent(at)))
            except BufferError:  # its buffer is full: wait for answers
                producer.poll(0.1)
            else:
                producer.poll(0)
                return

    yield awaited(send)
    producer.flush(PATIENCE)


@asynccontextmanager
async def worker(url: str, handle: Handle) -> AsyncGenerator[None]:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": kafka_servers(url),
            "group.id": kafka_group(url),
            "auto.offset.reset": "earliest",
            "enable.auto.offset.store": False,
        }
    )
    consumer.subscribe([kafka_topic(url)])
    ending = threading.Event()

    def consume() -> None:
        while not ending.is_set():
            record = consumer.poll(0.1)
            if record is not None and record.error() is None:
                handle(decode(record.value() or b"").at)
                consumer.store_offsets(record)

    thread = threading.Thread(target=consume, daemon=True)
    thread.start()
    yield
    ending.set()
    await asyncio.to_thread(thread.join)
    consumer.close()


# aiokafka


@asynccontextmanager
async def aio_publisher(url: str) -> AsyncGenerator[Publish]:
    aiokafka: Any = import_module("aiokafka")
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=kafka_servers(url), acks="all", enable_idempotence=True
    )
    topic = kafka_topic(url)

    async def publish(at: float) -> None:
        await producer.send_and_wait(topic, encode(Sent(at)))

    await producer.start()
    yield publish
    await producer.stop()


@asynccontextmanager
async def aio_worker(url: str, handle: Handle) -> AsyncGenerator[None]:
    aiokafka: Any = import_module("aiokafka")
    consumer = aiokafka.AIOKafkaConsumer(
        kafka_topic(url),
        bootstrap_servers=kafka_servers(url),
        group_id=kafka_group(url),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )

    async def consume() -> None:
        while True:
            got = await consumer.getmany(timeout_ms=1000, max_records=500)
            for records in got.values():
                for record in records:
                    handle(decode(record.value).at)
            if got:
                await consumer.commit()

    await consumer.start()
    consuming = asyncio.create_task(consume())
    yield
    consuming.cancel()
    await asyncio.wait([consuming])
    await consumer.stop()


PAIRS = {
    "confluent-kafka": Pair(publisher=publisher, worker=worker, prepare=make_topic),
    "aiokafka": Pair(publisher=aio_publisher, worker=aio_worker, prepare=make_topic),
}
