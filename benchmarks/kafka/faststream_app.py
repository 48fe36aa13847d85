"""FastStream on confluent-kafka: each message typed by its own MsgSpecSerializer.

Its log of every message is off, its producer idempotent. By default its subscriber commits in the
background what it has fetched, whether or not it was handled; with `AckPolicy.ACK` it commits each
message when it was, and with `batch=True` each batch, which its handler is given as a list.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from fast_depends.msgspec import MsgSpecSerializer
from faststream import AckPolicy
from faststream.confluent import KafkaBroker

from benchmarks.harness import Case, Measurement
from benchmarks.kafka.broker import PATIENCE, Place, place
from benchmarks.kafka.pace import Pace, in_flight, one_at_a_time
from benchmarks.order import Order, orders
from benchmarks.rabbitmq.stretch import Stretch, timed

BATCH = 500


def connecting(here: Place) -> Any:
    return KafkaBroker(
        here.servers,
        acks="all",
        enable_idempotence=True,
        allow_auto_create_topics=False,
        serializer=MsgSpecSerializer(),
        graceful_timeout=PATIENCE,
        logger=None,
    )


def publisher(broker: Any, topic: str) -> Callable[[Order], Awaitable[None]]:
    async def publish(order: Order) -> None:
        await broker.publish(order, topic)

    return publish


async def publish(messages: int, *, pace: Pace[Order]) -> Measurement:
    payloads = orders(Order, messages)
    with place() as here:
        here.make_topic()
        async with connecting(here) as broker:
            await broker.ping(PATIENCE)
            measurement = await timed(pace(publisher(broker, here.topic), payloads), messages)
        here.verify_stored(messages)
    return measurement


async def consume(messages: int, *, policy: AckPolicy, batches: bool = False) -> Measurement:
    stretch = Stretch(messages)

    async def charge(order: Order) -> None:
        stretch.add(order)

    async def charge_all(several: list[Order]) -> None:
        for order in several:
            stretch.add(order)

    more = {"batch": True, "max_records": BATCH} if batches else {}

    with place() as here:
        here.make_topic()
        async with connecting(here) as broker:
            await in_flight(publisher(broker, here.topic), orders(Order, messages))
        worker = connecting(here)
        worker.subscriber(
            here.topic, group_id=here.group, auto_offset_reset="earliest", ack_policy=policy, **more
        )(charge_all if batches else charge)
        async with worker:
            await worker.start()
            await stretch.done.wait()
        here.verify_committed(messages)
    return stretch.measurement(Order)


def case(name: str, run: Callable[[int], Awaitable[Measurement]]) -> Case:
    return Case(name=name, group="kafka", contender="FastStream", run=run)


CASES = (
    case("publish, 100 in flight", partial(publish, pace=in_flight)),
    case("publish, one at a time", partial(publish, pace=one_at_a_time)),
    case("consume", partial(consume, policy=AckPolicy.ACK_FIRST)),
    case("consume, acked when handled", partial(consume, policy=AckPolicy.ACK)),
    case(f"consume, batches of {BATCH}", partial(consume, policy=AckPolicy.ACK, batches=True)),
)
