"""redis-py, the bare client: RPUSH, and a loop around BLPOP; its parser is hiredis.

It neither types nor routes: msgspec encodes the order before RPUSH and decodes it after BLPOP. What
BLPOP has returned is gone from the server. A hundred in flight use up to a hundred connections.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
from redis.asyncio import Redis

from benchmarks.harness import Case, Measurement
from benchmarks.order import Order, orders
from benchmarks.rabbitmq.stretch import QUEUE, Pace, Stretch, in_flight, one_at_a_time, timed
from benchmarks.redis.broker import Place, place

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Order).decode


@asynccontextmanager
async def connecting(here: Place) -> AsyncGenerator[Any]:
    client: Any = Redis.from_url(here.server)
    try:
        await client.ping()
        yield client
    finally:
        await client.aclose()


def pusher(client: Any, key: str) -> Callable[[Order], Awaitable[None]]:
    async def push(order: Order) -> None:
        await client.rpush(key, encode(order))

    return push


async def publish(messages: int, *, pace: Pace[Order]) -> Measurement:
    payloads = orders(Order, messages)
    with place() as here:
        async with connecting(here) as client:
            measurement = await timed(pace(pusher(client, here.key()), payloads), messages)
        here.verify_count("LLEN", QUEUE, messages)
    return measurement


async def consume(messages: int) -> Measurement:
    stretch = Stretch(messages)

    async def charge(order: Order) -> None:
        stretch.add(order)

    with place() as here:
        key = here.key()
        async with connecting(here) as client:
            await in_flight(pusher(client, key), orders(Order, messages))
            while stretch.handled < messages:
                _, body = await client.blpop([key])
                await charge(decode(body))
        here.verify_count("LLEN", QUEUE, 0)
    return stretch.measurement(Order)


def case(name: str, run: Callable[[int], Awaitable[Measurement]]) -> Case:
    return Case(name=name, group="redis", contender="redis-py", run=run)


CASES = (
    case("publish, 100 in flight", partial(publish, pace=in_flight)),
    case("publish, one at a time", partial(publish, pace=one_at_a_time)),
    case("consume lists", consume),
)
