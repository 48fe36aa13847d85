"""aiokafka, the bare client in Python: `send_and_wait`, and a loop around `getmany`.

It neither types nor routes: msgspec encodes the order before and decodes it after. Its producer is
idempotent; offsets are committed, and waited for, after each batch. It consumes the records that
QueueCraft would, and does not look at their headers. Its batches are of 16 KiB by default, which
suits a hundred in flight; a thousand have to wait for room in them, and are five times as fast with
larger ones, so that these are what they get.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import Any

from benchmarks.harness import Case, Measurement
from benchmarks.kafka.broker import Place, place
from benchmarks.kafka.confluent_client import BATCH, decode, encode
from benchmarks.kafka.ours import fill
from benchmarks.kafka.pace import Pace, in_flight, one_at_a_time, thousand_in_flight
from benchmarks.order import Order, orders
from benchmarks.rabbitmq.stretch import Stretch, timed

USUAL = 16 * 1024
LARGE = 256 * 1024

# Not all that check these types have it.
aiokafka: Any = import_module("aiokafka")


@asynccontextmanager
async def producing(here: Place, batch: int) -> AsyncGenerator[Callable[[Order], Awaitable[None]]]:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=here.servers, acks="all", enable_idempotence=True, max_batch_size=batch
    )
    send, topic = producer.send_and_wait, here.topic

    async def publish(order: Order) -> None:
        await send(topic, encode(order))

    await producer.start()
    try:
        await producer.partitions_for(topic)
        yield publish
    finally:
        await producer.stop()


async def publish(messages: int, *, pace: Pace[Order], batch: int = USUAL) -> Measurement:
    payloads = orders(Order, messages)
    with place() as here:
        here.make_topic()
        async with producing(here, batch) as send:
            measurement = await timed(pace(send, payloads), messages)
        here.verify_stored(messages)
    return measurement


async def consume(messages: int) -> Measurement:
    stretch = Stretch(messages)

    async def charge(order: Order) -> None:
        stretch.add(order)

    with place() as here:
        await fill(here, messages)
        consumer = aiokafka.AIOKafkaConsumer(
            here.topic,
            bootstrap_servers=here.servers,
            group_id=here.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        await consumer.start()
        try:
            while stretch.handled < messages:
                got = await consumer.getmany(timeout_ms=1000, max_records=BATCH)
                for records in got.values():
                    for record in records:
                        await charge(decode(record.value))
                await consumer.commit()
        finally:
            await consumer.stop()
        here.verify_committed(messages)
    return stretch.measurement(Order)


def case(name: str, run: Callable[[int], Awaitable[Measurement]]) -> Case:
    return Case(name=name, group="kafka", contender="aiokafka", run=run)


CASES = (
    case("publish, 1000 in flight", partial(publish, pace=thousand_in_flight, batch=LARGE)),
    case("publish, 100 in flight", partial(publish, pace=in_flight)),
    case("publish, one at a time", partial(publish, pace=one_at_a_time)),
    case("consume, getmany(500)", consume),
)
