"""The first messages of a queue, held by one who keeps all others from it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import islice
from typing import Final

from queuecraft.drivers.rabbitmq.consuming import Consuming
from queuecraft.drivers.rabbitmq.frames import DELIVER, GET_EMPTY, GET_OK, method
from queuecraft.drivers.rabbitmq.methods import Get
from queuecraft.drivers.rabbitmq.wire import Wire

FETCHED: Final = 20  # messages asked for in one go: so many may be held beyond what is wanted
SEEN: Final = 200  # the same for one who wants no more than so many


@asynccontextmanager
async def hold(wire: Wire, queue: str, *, most: int, size: int) -> AsyncGenerator[Holding]:
    """Hold the first messages of a queue: all that are there, or about so many, or as many as have
    bodies of so many bytes. What is not acked within the block is back in its place after it.
    Raises `Closed` while anybody else consumes from the queue.

    The first comes to an exclusive consumer, which keeps the others out. The rest is fetched: a
    consumer would be sent all of it, however large."""
    channel = Holding(wire)
    arrivals = channel.arrivals
    held = found = 0
    try:
        await channel.consume(queue, prefetch=1, exclusive=True)
        while not channel.empty and not channel.ended and held < most and found < size:
            await channel.fetch(queue, min(FETCHED, most - held))
            found += sum(len(each.body) for each in islice(arrivals, held, None))
            held = len(arrivals)
        yield channel
    finally:
        await channel.close()


@asynccontextmanager
async def look(wire: Wire, queue: str, wanted: int) -> AsyncGenerator[Holding]:
    """The same as a `glance`, without a consumer: an auto-delete queue goes with the last of them.
    Raises `Closed` at a quorum queue with a single active consumer."""
    channel = Holding(wire)
    try:
        await channel.open()
        while not channel.empty and (missing := wanted - len(channel.arrivals)) > 0:
            await channel.fetch(queue, min(SEEN, missing))
        yield channel
    finally:
        await channel.close()


class Holding(Consuming):
    """A channel that fetches besides."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self.empty = False  # the queue, when it was asked for more

    async def fetch(self, queue: str, count: int) -> None:
        """Wait for so many more, or until there are no more."""
        self.check_open()
        enough = len(self.arrivals) + count
        self.wire.write(method(self.number, Get(queue=queue)) * count)
        while len(self.arrivals) < enough and not self.empty and not self.ended:
            await self.arrived_more()

    def hear(self, code: int, payload: bytes) -> bool:
        if code == GET_EMPTY:
            self.empty = True
            self.wake()
            return True
        if code == GET_OK:  # a delivery to nobody, that ends with how many are left
            return super().hear(DELIVER, payload[:4] + b"\0" + payload[4:-4])
        return super().hear(code, payload)
