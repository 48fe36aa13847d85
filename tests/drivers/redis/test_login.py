"""Getting into a Redis that behaves badly."""

from __future__ import annotations

import asyncio

import pytest

from queuecraft.drivers.redis.address import Address
from queuecraft.drivers.redis.login import log_in
from queuecraft.model.errors import ConnectionLost


async def test_a_server_that_falls_silent_is_left_with_the_connection_closed() -> None:
    left = asyncio.Event()

    async def greet_and_fall_silent(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await reader.readuntil(b"PING\r\n")
        writer.write(b"+OK\r\n+PONG\r\n")
        await reader.read()  # what it is asked next is not answered, until nobody is there
        left.set()
        writer.close()

    server = await asyncio.start_server(greet_and_fall_silent, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectionLost, match="no answer within"):
            await log_in(Address("127.0.0.1", port), None, timeout=0.2, heartbeat=0)
        await left.wait()
