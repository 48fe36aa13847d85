"""The other end of a connection, without a socket: a broker that says what a test wants it to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from pamqp import commands, frame
from pamqp.base import Frame
from pamqp.body import ContentBody
from pamqp.frame import FrameTypes
from pamqp.header import ContentHeader

from queuecraft.drivers.rabbitmq.channel import Channel
from queuecraft.drivers.rabbitmq.wire import Wire

C = TypeVar("C", bound=Channel)
F = TypeVar("F", bound=Frame)

ANSWERS: dict[type[Frame], Callable[[], Frame]] = {
    commands.Channel.Open: commands.Channel.OpenOk,
    commands.Channel.Close: commands.Channel.CloseOk,
    commands.Connection.Close: commands.Connection.CloseOk,
    commands.Confirm.Select: commands.Confirm.SelectOk,
    commands.Basic.Qos: commands.Basic.QosOk,
    commands.Basic.Consume: lambda: commands.Basic.ConsumeOk("tag"),
    commands.Basic.Cancel: lambda: commands.Basic.CancelOk("tag"),
    commands.Queue.Declare: lambda: commands.Queue.DeclareOk("queue", 1, 2),
}


class Broker(asyncio.Transport):
    """Hears what a `Wire` writes, read by pamqp, and answers unless it is to be silent."""

    def __init__(self) -> None:
        super().__init__()
        self.wire = Wire()
        self.heard: list[tuple[int, FrameTypes]] = []
        self.silent: set[type[Frame]] = set()
        self.aborted = False
        self._rest = b""
        self.wire.connection_made(self)

    # -- what a test does with it --------------------------------------------------------------

    def say(self, channel: int, *spoken: Frame) -> None:
        """Let the client hear this at once."""
        self.wire.data_received(said(channel, *spoken))

    def commands(self, kind: type[F]) -> list[tuple[int, F]]:
        """What was heard of this kind, with the channel it was said on."""
        return [(channel, each) for channel, each in self.heard if isinstance(each, kind)]

    async def open(self, kind: Callable[[Wire], C]) -> C:
        """A channel of this kind, opened."""
        channel = kind(self.wire)
        await channel.open()
        return channel

    # -- what the wire calls -------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._rest += bytes(data)
        while self._rest:
            size, channel, command = frame.unmarshal(self._rest)
            self._rest = self._rest[size:]
            self.heard.append((channel, command))
            answer = ANSWERS.get(type(command)) if isinstance(command, Frame) else None
            if answer is not None and type(command) not in self.silent:
                asyncio.get_running_loop().call_soon(self.say, channel, answer())

    def abort(self) -> None:
        self.aborted = True
        asyncio.get_running_loop().call_soon(self.wire.connection_lost, None)


def said(channel: int, *spoken: Frame) -> bytes:
    """Methods, as they look on the wire."""
    return b"".join(frame.marshal(each, channel) for each in spoken)


def message(
    channel: int, method: Frame, pieces: Iterable[bytes] = (b"{}",), **properties: Any
) -> bytes:
    """A delivery or a return, its body in so many frames."""
    pieces = list(pieces)
    header = ContentHeader(0, sum(map(len, pieces)), commands.Basic.Properties(**properties))
    return b"".join(
        [
            frame.marshal(method, channel),
            frame.marshal(header, channel),
            *(frame.marshal(ContentBody(piece), channel) for piece in pieces),
        ]
    )


def delivery(
    channel: int, tag: int, *pieces: bytes, redelivered: bool = False, **properties: Any
) -> bytes:
    """A message for a consumer."""
    deliver = commands.Basic.Deliver("tag", tag, redelivered, "events", "order.placed")
    return message(channel, deliver, pieces, **properties)


async def turn() -> None:
    """Let everything that is ready happen."""
    for _ in range(5):
        await asyncio.sleep(0)
