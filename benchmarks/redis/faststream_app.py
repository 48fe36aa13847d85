"""FastStream: lists, and streams read by a group and acked when handled.

Orders are msgspec Structs with its own MsgSpecSerializer. Its log of every message is off. Its list
subscriber takes messages off the server one by one before they are handled; its stream subscriber
reads up to a hundred and acks them one by one. Both are shown as they are by default, with one
handler at a time, and with `max_workers=100`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from fast_depends.msgspec import MsgSpecSerializer
from faststream import AckPolicy
from faststream.redis import RedisBroker, StreamSub

from benchmarks.harness import Case, Measurement
from benchmarks.order import Order, orders
from benchmarks.rabbitmq.stretch import (
    IN_FLIGHT,
    PREFETCH,
    QUEUE,
    Pace,
    Stretch,
    in_flight,
    one_at_a_time,
    timed,
)
from benchmarks.redis.broker import Place, place
from tests.brokers.redis import call

PATIENCE = 20.0
GROUP = "billing"


def connecting(here: Place) -> Any:
    broker: Any = RedisBroker  # whose types do not know that no logger means no log
    return broker(
        here.server, serializer=MsgSpecSerializer(), graceful_timeout=PATIENCE, logger=None
    )


def publisher(broker: Any, **where: str) -> Callable[[Order], Awaitable[None]]:
    async def publish(order: Order) -> None:
        await broker.publish(order, **where)

    return publish


async def publish(messages: int, *, pace: Pace[Order]) -> Measurement:
    payloads = orders(Order, messages)
    with place() as here:
        async with connecting(here) as broker:
            measurement = await timed(pace(publisher(broker, list=here.key()), payloads), messages)
        here.verify_count("LLEN", QUEUE, messages)
    return measurement


async def consume_list(messages: int, *, workers: int) -> Measurement:
    stretch = Stretch(messages)

    async def charge(order: Order) -> None:
        stretch.add(order)

    with place() as here:
        async with connecting(here) as broker:
            await in_flight(publisher(broker, list=here.key()), orders(Order, messages))
        worker = connecting(here)
        worker.subscriber(list=here.key(), max_workers=workers)(charge)
        async with worker:
            await worker.start()
            await stretch.done.wait()
        here.verify_count("LLEN", QUEUE, 0)
    return stretch.measurement(Order)


async def consume_stream(messages: int, *, workers: int) -> Measurement:
    stretch = Stretch(messages)

    async def charge(order: Order) -> None:
        stretch.add(order)

    with place() as here:
        key = here.key()
        async with connecting(here) as broker:
            await in_flight(publisher(broker, stream=key), orders(Order, messages))
        call(here.server, "XGROUP", "CREATE", key, GROUP, "0")
        worker = connecting(here)
        source = StreamSub(key, group=GROUP, consumer="one", max_records=PREFETCH)
        worker.subscriber(stream=source, max_workers=workers, ack_policy=AckPolicy.REJECT_ON_ERROR)(
            charge
        )
        async with worker:
            await worker.start()
            await stretch.done.wait()
        here.verify_acked(QUEUE, GROUP, messages)
    return stretch.measurement(Order)


def case(name: str, run: Callable[[int], Awaitable[Measurement]]) -> Case:
    return Case(name=name, group="redis", contender="FastStream", run=run)


CASES = (
    case("publish, 100 in flight", partial(publish, pace=in_flight)),
    case("publish, one at a time", partial(publish, pace=one_at_a_time)),
    case("consume lists", partial(consume_list, workers=1)),
    case("consume lists, 100 handlers", partial(consume_list, workers=IN_FLIGHT)),
    case("consume streams", partial(consume_stream, workers=1)),
    case("consume streams, 100 handlers", partial(consume_stream, workers=IN_FLIGHT)),
)
