"""Notes over RabbitMQ: an exchange that gives each of them to everybody who listens.

Nothing is kept: who listens knows what was put up since. A note goes beside what is published, on
a channel without confirms; the connection that consumes must never publish, since a broker that is
short of memory stops reading from one that does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from pamqp import commands

from queuecraft.drivers.notes import Notes
from queuecraft.drivers.rabbitmq.channel import Channel
from queuecraft.drivers.rabbitmq.consuming import Arrival, Consuming
from queuecraft.drivers.rabbitmq.frames import OVERHEAD, Properties, content, method, pack
from queuecraft.drivers.rabbitmq.methods import Consume, ExchangeDeclare, QueueBind, QueueDeclare
from queuecraft.drivers.rabbitmq.refusals import refusable
from queuecraft.drivers.rabbitmq.wire import Wire
from queuecraft.model.errors import ConnectionLost, QueueError

EXCHANGE: Final = "queuecraft.presence"
LIMITS: Final[Mapping[str, Any]] = {
    "x-queue-type": "classic",
    "x-max-length": 10_000,
    "x-message-ttl": 60_000,
}
"""Of the queue of one who listens: it may be slow, and notes are not worth much memory."""


class Noticeboard:
    """The notes of one virtual host, as far as they were heard."""

    def __init__(self, publishing: Wire, consuming: Wire, now: Callable[[], float]) -> None:
        self._publishing = publishing
        self._consuming = consuming
        self._now = now
        self._notes = Notes(now)
        self._announcing: Channel | None = None
        self._hearing: Hearing | None = None
        self._turn = asyncio.Lock()
        self._refused = False  # a user who may not: asked once, since the broker logs each refusal

    async def put(self, name: str, note: bytes, ttl: float) -> None:
        """Tell a note to all who listen. A broker that takes nothing now is not told."""
        wire = self._publishing
        if self._refused or wire.blocked is not None:
            if wire.lost is not None:
                raise wire.lost.with_traceback(None)
            return
        async with self._turn:
            channel = self._announcing
            if channel is None or channel.lost is not None:
                channel = self._announcing = await self._begin()
        number, most = channel.number, wire.frame_max - OVERHEAD
        milliseconds = str(max(1, round(1000 * ttl)))
        said = pack(Properties(delivery_mode=1, expiration=milliseconds))
        there = commands.Basic.Publish(exchange=EXCHANGE, routing_key=name)
        wire.write(method(number, there) + b"".join(content(number, said, note, most)))

    async def up(self) -> Mapping[str, bytes] | None:
        """What was heard since this was first asked; None for a user who may not listen."""
        if self._refused:
            return None
        async with self._turn:
            if self._hearing is None or self._hearing.ended:
                hearing = Hearing(self._consuming, self._heard)
                with self._refusable():
                    await hearing.begin()
                self._hearing = hearing
        return self._notes.up()

    async def _begin(self) -> Channel:
        channel = Channel(self._publishing)
        await channel.open()
        with self._refusable():
            await _declare(channel)
        return channel

    @contextmanager
    def _refusable(self) -> Generator[None]:
        try:
            with refusable("announce", EXCHANGE):
                yield
        except QueueError as error:
            self._refused = not isinstance(error, ConnectionLost)
            raise

    def _heard(self, arrival: Arrival) -> None:
        told = arrival.properties.expiration or ""
        if told.isascii() and told.isdecimal() and len(told) < 12:
            until = self._now() + int(told) / 1000
            self._notes.put(arrival.routing_key, arrival.body, until=until)


class Hearing(Consuming):
    """A channel that hears every note, by a queue of its own that goes with the connection."""

    def __init__(self, wire: Wire, heard: Callable[[Arrival], None]) -> None:
        super().__init__(wire)
        self._heard = heard

    async def begin(self) -> None:
        """Listen from now on."""
        await self.open()
        await _declare(self)
        asked = QueueDeclare(queue="", exclusive=True, auto_delete=True, arguments=dict(LIMITS))
        queue = (await self.ask(asked, commands.Queue.DeclareOk)).queue or ""
        await self.ask(QueueBind(queue=queue, exchange=EXCHANGE), commands.Queue.BindOk)
        await self.ask(Consume(queue=queue, no_ack=True), commands.Basic.ConsumeOk)

    def _complete(self, body: bytes) -> None:
        super()._complete(body)
        self._unsettled.clear()  # the broker has forgotten it
        while self.arrivals:
            self._heard(self.arrivals.popleft())


async def _declare(channel: Channel) -> None:
    """See that the exchange is there. It is durable, so that a restart takes it from nobody."""
    asked = ExchangeDeclare(exchange=EXCHANGE, exchange_type="fanout", durable=True)
    await channel.ask(asked, commands.Exchange.DeclareOk)
