"""redis-py, the bare client, with hiredis as its parser: the fastest ways that Redis itself has.

It neither types nor routes: msgspec encodes the order before it is stored and decodes it after. One
RPUSH at a time, up to a hundred connections for a hundred at once, or pipelines of 500. It reads
with BLPOP, which takes an order from the server before it is handled; with LMOVE in pipelines of a
hundred into a list of its own, from which they are trimmed when they were handled; or a hundred of
a stream by a group, acknowledged together. What it held when it died, nobody else is given.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
from redis.asyncio import Redis

from benchmarks.harness import Case, Measurement
from benchmarks.order import Order, orders
from benchmarks.pairs.redis_clients import entries_of
from benchmarks.rabbitmq.stretch import QUEUE, Pace, Stretch, in_flight, one_at_a_time, timed
from benchmarks.redis.broker import Place, place

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Order).decode

BATCH, AT_ONCE = 500, 100
GROUP = "billing"
IN_HAND = "billing.in-hand"

Taking = Callable[[Any, Place, Stretch, int], Coroutine[Any, Any, None]]
"""Fills a queue and empties it."""


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


async def push_all(client: Any, key: str, payloads: Sequence[Order]) -> None:
    for begun in range(0, len(payloads), BATCH):
        pipeline = client.pipeline(transaction=False)
        for order in payloads[begun : begun + BATCH]:
            pipeline.rpush(key, encode(order))
        await pipeline.execute()


async def publish_pipelined(messages: int) -> Measurement:
    payloads = orders(Order, messages)
    with place() as here:
        async with connecting(here) as client:
            measurement = await timed(push_all(client, here.key(), payloads), messages)
        here.verify_count("LLEN", QUEUE, messages)
    return measurement


async def pop(client: Any, here: Place, stretch: Stretch, messages: int) -> None:
    key = here.key()
    await push_all(client, key, orders(Order, messages))
    while stretch.handled < messages:
        _, body = await client.blpop([key])
        stretch.add(decode(body))


async def move(client: Any, here: Place, stretch: Stretch, messages: int) -> None:
    key, mine = here.key(), here.key(IN_HAND)
    await push_all(client, key, orders(Order, messages))
    while stretch.handled < messages:
        pipeline = client.pipeline(transaction=False)
        for _ in range(AT_ONCE):
            pipeline.lmove(key, mine, "LEFT", "RIGHT")
        got = [body for body in await pipeline.execute() if body is not None]
        for body in got:
            stretch.add(decode(body))
        await client.ltrim(mine, len(got), -1)


async def read(client: Any, here: Place, stretch: Stretch, messages: int) -> None:
    key = here.key()
    await client.xgroup_create(key, GROUP, id="0", mkstream=True)
    payloads = orders(Order, messages)
    for begun in range(0, messages, BATCH):
        pipeline = client.pipeline(transaction=False)
        for order in payloads[begun : begun + BATCH]:
            pipeline.xadd(key, {"order": encode(order)})
        await pipeline.execute()
    while stretch.handled < messages:
        told = await client.xreadgroup(GROUP, "one", {key: ">"}, count=AT_ONCE, block=1000)
        entries = entries_of(told)
        for _, fields in entries:
            stretch.add(decode(fields[b"order"]))
        await client.xack(key, GROUP, *(number for number, _ in entries))


async def consume(messages: int, *, take: Taking) -> Measurement:
    stretch = Stretch(messages)
    with place() as here:
        async with connecting(here) as client:
            await take(client, here, stretch, messages)
        if take is read:
            here.verify_acked(QUEUE, GROUP, messages)
        else:
            here.verify_count("LLEN", QUEUE, 0)
            here.verify_count("LLEN", IN_HAND, 0)
    return stretch.measurement(Order)


def case(name: str, run: Callable[[int], Awaitable[Measurement]]) -> Case:
    return Case(name=name, group="redis", contender="redis-py", run=run)


CASES = (
    case("publish, 100 in flight", partial(publish, pace=in_flight)),
    case("publish, one at a time", partial(publish, pace=one_at_a_time)),
    case(f"publish, pipelines of {BATCH}", publish_pipelined),
    case("consume lists, BLPOP", partial(consume, take=pop)),
    case(f"consume lists, LMOVE of {AT_ONCE}", partial(consume, take=move)),
    case(f"consume streams, XREADGROUP of {AT_ONCE}", partial(consume, take=read)),
)
