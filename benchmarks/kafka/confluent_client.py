"""confluent-kafka, the bare client: `produce` with callbacks, and a loop around `consume(500)`.

It neither types nor routes: msgspec encodes the order before and decodes it after. It runs in one
thread without an event loop: all orders are in flight at once, and a handler is called and not
awaited. Offsets are committed after each batch, without waiting for the answer. It consumes
the same records as QueueCraft, and does not look at their headers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import perf_counter

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from benchmarks.harness import Case, Measurement
from benchmarks.kafka.broker import PATIENCE, Place, place
from benchmarks.kafka.ours import fill
from benchmarks.order import Order, WrongCount, orders
from benchmarks.rabbitmq.stretch import Stretch

BATCH = 500

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Order).decode


def produce_all(here: Place, payloads: Sequence[Order]) -> Measurement:
    """From the first call to the last answer."""
    settings = here.settings(acks="all", enable_idempotence=True)
    producer = Producer({**settings, "queue.buffering.max.messages": len(payloads) + 1})
    stored = 0

    def landed(error: KafkaError | None, record: Message) -> None:
        nonlocal stored
        if error is not None:
            raise KafkaException(error)
        stored += 1

    producer.list_topics(here.topic, timeout=PATIENCE)
    started = perf_counter()
    for payload in payloads:
        producer.produce(here.topic, encode(payload), on_delivery=landed)
        producer.poll(0)
    producer.flush(PATIENCE)
    measurement = Measurement(len(payloads), perf_counter() - started)
    if stored != len(payloads):
        raise WrongCount(f"stored {stored} messages of {len(payloads)}")
    return measurement


def publish(messages: int) -> Measurement:
    payloads = orders(Order, messages)
    with place() as here:
        here.make_topic()
        measurement = produce_all(here, payloads)
        here.verify_stored(messages)
    return measurement


def consume(messages: int) -> Measurement:
    stretch = Stretch(messages)
    with place() as here:
        asyncio.run(fill(here, messages))
        settings = here.settings(
            group_id=here.group, enable_auto_commit=False, auto_offset_reset="earliest"
        )
        consumer = Consumer(settings)
        try:
            consumer.subscribe([here.topic])
            while stretch.handled < messages:
                for record in consumer.consume(min(BATCH, messages - stretch.handled), PATIENCE):
                    if (error := record.error()) is not None:
                        raise KafkaException(error)
                    stretch.add(decode(record.value() or b""))
                consumer.commit(asynchronous=True)
            # Those that were not waited for come before it; what was never read has no offset.
            reached = consumer.position(consumer.assignment())
            consumer.commit(
                offsets=[each for each in reached if each.offset >= 0], asynchronous=False
            )
        finally:
            consumer.close()
        here.verify_committed(messages)
    return stretch.measurement(Order)


def case(name: str, run: Callable[[int], Measurement]) -> Case:
    return Case(name=name, group="kafka", contender="confluent-kafka", run=run)


CASES = (case("publish, produce and flush", publish), case("consume(500)", consume))
