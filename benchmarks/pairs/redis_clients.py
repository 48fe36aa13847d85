"""redis-py, the bare client: RPUSH and BLPOP, or a stream read by a group and acked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis

from benchmarks.pairs.address import redis_key, redis_server
from benchmarks.pairs.pair import Pair, nothing
from benchmarks.sent import PREFETCH, Handle, Publish, Sent, decode, encode

GROUP = "billing"

Consume = Callable[[Any, str, Handle], Coroutine[Any, Any, None]]


@asynccontextmanager
async def connecting(url: str) -> AsyncGenerator[Any]:
    client: Any = Redis.from_url(redis_server(url))
    try:
        await client.ping()
        yield client
    finally:
        await client.aclose()


@asynccontextmanager
async def pushing(url: str) -> AsyncGenerator[Publish]:
    key = redis_key(url)
    async with connecting(url) as client:

        async def publish(at: float) -> None:
            await client.rpush(key, encode(Sent(at)))

        yield publish


@asynccontextmanager
async def adding(url: str) -> AsyncGenerator[Publish]:
    key = redis_key(url)
    async with connecting(url) as client:

        async def publish(at: float) -> None:
            await client.xadd(key, {"order": encode(Sent(at))})

        yield publish


async def make_group(url: str) -> None:
    async with connecting(url) as client:
        await client.xgroup_create(redis_key(url), GROUP, id="0", mkstream=True)


async def pop(client: Any, key: str, handle: Handle) -> None:
    while True:
        _, body = await client.blpop([key])
        handle(decode(body).at)


def entries_of(told: Any) -> list[Any]:
    """What XREADGROUP has read of one stream: number and fields of each entry.

    >>> entries_of({"orders": [[("1-0", {})]]}), entries_of([("orders", [("1-0", {})])])
    ([('1-0', {})], [('1-0', {})])
    """
    # Answers of the third protocol are maps, of the second lists of pairs.
    streams = (
        [each[0] for each in told.values()] if isinstance(told, dict) else [e for _, e in told]
    )
    return [entry for entries in streams for entry in entries]


async def read(client: Any, key: str, handle: Handle) -> None:
    while True:
        told = await client.xreadgroup(GROUP, "one", {key: ">"}, count=PREFETCH, block=1000)
        if entries := entries_of(told):
            for _, fields in entries:
                handle(decode(fields[b"order"]).at)
            await client.xack(key, GROUP, *(number for number, _ in entries))


def worker(consume: Consume) -> Any:
    @asynccontextmanager
    async def working(url: str, handle: Handle) -> AsyncGenerator[None]:
        async with connecting(url) as client:
            consuming = asyncio.create_task(consume(client, redis_key(url), handle))
            yield
            consuming.cancel()
            await asyncio.wait([consuming])

    return working


PAIRS = {
    "lists": Pair(publisher=pushing, worker=worker(pop), prepare=nothing),
    "streams": Pair(publisher=adding, worker=worker(read), prepare=make_group),
}
