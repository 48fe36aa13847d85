"""A server on loopback that plays a part: what it hears and says, step by step."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias, TypeVar

from pamqp import commands, frame
from pamqp.base import Frame
from pamqp.header import ProtocolHeader

from queuecraft.drivers.rabbitmq.login import log_in
from queuecraft.drivers.rabbitmq.wire import Wire
from queuecraft.model.credentials import Credentials

F = TypeVar("F", bound=Frame)

ADA = Credentials("ada", "s3cret")
RESET = struct.pack("ii", 1, 0)


class Peer:
    """One connection, as its server sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def hear(self, kind: type[F]) -> F:
        """The next method, which has to be this one; heartbeats and contents are passed over."""
        while True:
            start = await self._reader.readexactly(7)
            (size,) = struct.unpack(">I", start[3:])
            _, _, got = frame.unmarshal(start + await self._reader.readexactly(size + 1))
            if isinstance(got, Frame):
                assert isinstance(got, kind), f"{got.name} instead of {kind.name}"
                return got

    async def hear_greeting(self) -> None:
        _, _, greeting = frame.unmarshal(await self._reader.readexactly(8))
        assert isinstance(greeting, ProtocolHeader)

    async def hear_end(self) -> None:
        """Until the client has closed the connection."""
        try:
            while await self._reader.read(65_536):
                pass
        except ConnectionError:
            pass

    def say(self, channel: int, *spoken: Frame) -> None:
        self.send(b"".join(frame.marshal(each, channel) for each in spoken))

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    def cut(self) -> None:
        self._writer.close()

    def reset(self) -> None:
        """End it as a machine that crashes does."""
        sock: socket.socket = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self._writer.transport.abort()

    async def let_in(
        self,
        *,
        frame_max: int = 131_072,
        channel_max: int = 2047,
        heartbeat: int = 60,
        mechanisms: str = "PLAIN EXTERNAL",
    ) -> commands.Connection.StartOk:
        """What a broker says to somebody who is welcome."""
        await self.hear_greeting()
        self.say(0, commands.Connection.Start(0, 9, {}, mechanisms, "en_US"))
        introduced = await self.hear(commands.Connection.StartOk)
        self.say(0, commands.Connection.Tune(channel_max, frame_max, heartbeat))
        await self.hear(commands.Connection.TuneOk)
        await self.hear(commands.Connection.Open)
        self.say(0, commands.Connection.OpenOk())
        return introduced


Part: TypeAlias = Callable[[Peer], Awaitable[object]]


@asynccontextmanager
async def playing(
    part: Part, context: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncGenerator[int]:
    """The port of a server that plays this part with everyone who connects."""
    acts: list[asyncio.Task[None]] = []
    over = asyncio.Event()

    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        try:
            await part(peer)
            await over.wait()
        finally:
            writer.transport.abort()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        acts.append(asyncio.create_task(act(reader, writer)))

    server = await asyncio.start_server(connected, host, 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        over.set()
        server.close()
        await asyncio.gather(*acts)
        await server.wait_closed()


async def enter(
    port: int,
    *,
    host: str = "127.0.0.1",
    virtual_host: str = "/",
    credentials: Credentials = ADA,
    context: ssl.SSLContext | None = None,
) -> Wire:
    """Log in there."""
    return await log_in(
        host,
        port,
        virtual_host=virtual_host,
        credentials=credentials,
        heartbeat=60,
        ssl=context,
        name="a test",
    )
