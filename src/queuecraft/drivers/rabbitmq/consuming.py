"""Consuming: deliveries as they come, and acks, many in one write."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from pamqp import commands

from queuecraft.drivers.base import ConnectionLost
from queuecraft.drivers.rabbitmq.channel import Channel
from queuecraft.drivers.rabbitmq.fields import Malformed
from queuecraft.drivers.rabbitmq.frames import (
    DELIVER,
    ROUTES,
    TAG,
    Properties,
    ack,
    give_back,
    read_properties,
    read_route,
)
from queuecraft.drivers.rabbitmq.methods import Consume
from queuecraft.drivers.rabbitmq.wire import Wire


class Arrival(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A message as it came."""

    tag: int
    redelivered: bool
    exchange: str
    routing_key: str
    properties: Properties
    body: bytes


GLANCE: Final = 0.5  # seconds to wait for the next message that is said to be there


@asynccontextmanager
async def glance(wire: Wire, queue: str, wanted: int) -> AsyncGenerator[Consuming]:
    """Hold the next so many messages of a queue, or as many as come. What is not acked within the
    block is back in its place after it."""
    channel = Consuming(wire)
    try:
        await channel.consume(queue, prefetch=wanted)
        try:
            async with asyncio.timeout(GLANCE) as patience:
                while len(channel.arrivals) < wanted and not channel.ended:
                    await channel.arrived_more()
                    patience.reschedule(asyncio.get_running_loop().time() + GLANCE)
        except TimeoutError:
            pass  # others were faster
        yield channel
    finally:
        await channel.close()


class Consuming(Channel):
    """A channel with one consumer."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self.arrivals: deque[Arrival] = deque()
        self._unsettled: dict[int, None] = {}  # tags, in order
        self._cancelled = False
        self._consume: commands.Basic.Consume | None = None
        # One at a time: which tag to end is known only when the broker has said that it began.
        self._changing = asyncio.Lock()
        self._stopped = False
        self._resumed = 0
        self._tag = ""
        self._expected: asyncio.Future[None] | None = None
        self._routes: dict[bytes, tuple[str, str]] = {}
        self._method: tuple[int, bool, tuple[str, str]] | None = None
        self._properties: Properties | None = None
        self._missing = 0
        self._pieces: list[bytes] = []

    async def consume(
        self, queue: str, *, prefetch: int, exclusive: bool = False, tag: str = ""
    ) -> None:
        """Receive, with at most `prefetch` not settled."""
        await self.open()
        qos = commands.Basic.Qos(0, min(prefetch, 65_535), False)
        await self.ask(qos, commands.Basic.QosOk)
        self._consume = Consume(queue=queue, consumer_tag=tag, exclusive=exclusive)
        await self._begin(self._consume)

    async def stop(self) -> None:
        """Be given nothing more until `resume`; what is held stays held."""
        async with self._changing:
            if not self._stopped and not self._cancelled:
                self._stopped = True
                await self.ask(commands.Basic.Cancel(self._tag), commands.Basic.CancelOk)

    async def resume(self) -> None:
        """Receive again, as another consumer. By the same tag, while something it was given before
        is still held, RabbitMQ before 3.10.9 and 3.11.1 delivers from a quorum queue what it cannot
        read, and closes the connection with INTERNAL_ERROR; and again after each reconnect, because
        what comes again is given back again."""
        async with self._changing:
            if self._stopped and (first := self._consume) is not None:
                self._stopped = False
                self._resumed += 1
                again = Consume(
                    queue=first.queue,
                    consumer_tag=first.consumer_tag and f"{first.consumer_tag}-{self._resumed}",
                    exclusive=first.exclusive,
                )
                await self._begin(again)

    @property
    def stopped(self) -> bool:
        """Whether it is given nothing."""
        return self._stopped

    @property
    def ended(self) -> bool:
        """Whether nothing more can come."""
        return self.lost is not None or self._cancelled

    async def arrived(self) -> None:
        """Wait until there is something, or nothing more can come."""
        if not self.arrivals:
            await self.arrived_more()

    async def arrived_more(self) -> None:
        """Wait until there is one more, or nothing more can come."""
        if not self.ended:
            if self._expected is None or self._expected.done():
                self._expected = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._expected)

    def check_open(self) -> None:
        """Raise if nothing can be settled any more."""
        if self.lost is not None:
            raise self.lost.with_traceback(None)

    def check(self) -> None:
        """Raise if nothing more can come."""
        self.check_open()
        if self._cancelled and not self.arrivals:
            raise ConnectionLost(
                "the broker has ended the consumer: its queue is gone, or it took too long",
                broker="rabbitmq",
            )

    def ack(self, tags: Sequence[int]) -> None:
        """Forget these: all up to the first that is not settled in one go, the rest one by one."""
        tags = self._settled(tags)
        out: list[bytes] = []
        oldest = next(iter(self._unsettled), None)
        before = tags if oldest is None else [tag for tag in tags if tag < oldest]
        if before:
            out.append(ack(self.number, max(before), multiple=True))
        if oldest is not None and len(before) < len(tags):
            out += [ack(self.number, tag, multiple=False) for tag in tags if tag > oldest]
        if out:
            self.wire.write(b"".join(out))

    def give_back(self, tags: Sequence[int]) -> None:
        """Put these back into their queue, each in its place."""
        tags = self._settled(tags)
        if tags:
            self.wire.write(b"".join(give_back(self.number, tag) for tag in sorted(tags)))

    def wake(self) -> None:
        """Whoever waits for an arrival is to look for other things too."""
        self._tell()

    # -- what the connection calls -------------------------------------------------------------

    def hear(self, code: int, payload: bytes) -> bool:
        if code != DELIVER:
            return False
        if self._method is not None:
            raise Malformed("a delivery within a delivery")
        try:
            at = 5 + payload[4]  # past the consumer tag: there is but one
            tag, flags = TAG.unpack_from(payload, at)
        except (IndexError, struct.error) as error:
            raise Malformed("a delivery that does not end") from error
        told = payload[at + 9 :]
        route = self._routes.get(told)
        if route is None:
            route = read_route(told)
            if len(self._routes) >= ROUTES:
                self._routes.clear()
            self._routes[told] = route
        self._method = tag, flags & 1 != 0, route
        return True

    def on_header(self, payload: bytes) -> None:
        if self._method is None or self._properties is not None:
            raise Malformed("a header that belongs to nothing")
        self._missing, self._properties = read_properties(payload)
        if not self._missing:
            self._complete(b"")

    def on_body(self, payload: bytes) -> None:
        self._missing -= len(payload)
        if self._missing > 0:
            self._pieces.append(payload)
        elif self._pieces:
            self._pieces.append(payload)
            body = b"".join(self._pieces)
            self._pieces.clear()
            self._complete(body)
        else:
            self._complete(payload)

    def on_lost(self, error: ConnectionLost) -> None:
        super().on_lost(error)
        self.arrivals.clear()
        self._unsettled.clear()
        self._tell()

    def on_cancel(self) -> None:
        self._cancelled = True
        self._tell()

    # -- inside --------------------------------------------------------------------------------

    async def _begin(self, consume: commands.Basic.Consume) -> None:
        answer = await self.ask(consume, commands.Basic.ConsumeOk)
        self._tag = answer.consumer_tag or consume.consumer_tag

    def _complete(self, body: bytes) -> None:
        properties = self._properties
        if self._method is None or properties is None or self._missing < 0:
            raise Malformed("a body that belongs to nothing")
        tag, redelivered, (exchange, routing_key) = self._method
        self._method = self._properties = None
        self._unsettled[tag] = None
        self.arrivals.append(Arrival(tag, redelivered, exchange, routing_key, properties, body))
        self._tell()

    def _settled(self, tags: Sequence[int]) -> list[int]:
        """Those of the tags that were not settled before: to settle one twice costs the channel."""
        settle = self._unsettled.pop
        return [tag for tag in tags if settle(tag, tag) is None]

    def _tell(self) -> None:
        if self._expected is not None and not self._expected.done():
            self._expected.set_result(None)
