"""A bare `asyncio.Queue` between two tasks: encoded, queued, decoded and validated, awaited.

What is left when a framework does nothing: no routing, no acknowledgement, no retry, one consumer.
"""

from __future__ import annotations

import asyncio
from time import perf_counter

import msgspec

from benchmarks.harness import Case, Measurement
from benchmarks.order import Order, Tally, orders

ROOM = 500


async def run(messages: int) -> Measurement:
    tally = Tally(messages)

    async def charge(order: Order) -> None:
        tally.add(order)

    queue: asyncio.Queue[bytes] = asyncio.Queue(ROOM)
    encode = msgspec.json.Encoder().encode
    decode = msgspec.json.Decoder(Order).decode
    payloads = orders(Order, messages)

    async def consume() -> None:
        while True:
            await charge(decode(await queue.get()))

    consumer = asyncio.create_task(consume())
    started = perf_counter()
    for payload in payloads:
        await queue.put(encode(payload))
    await tally.done.wait()
    seconds = perf_counter() - started
    consumer.cancel()
    await asyncio.wait([consumer])
    tally.verify(Order)
    return Measurement(messages, seconds)


CASES = (Case(name="the limit", group="memory", contender="asyncio.Queue", run=run),)
