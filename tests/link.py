"""A connection through the proxy: what is on its way, and what becomes of it."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import termios
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

Side = Literal["client", "server"]

CHUNK = 65_536
HELD = 4 * 1024 * 1024  # so much may be under way in one direction before its sender has to wait


class Allowance:
    """What may still pass before everything is cut."""

    def __init__(self, left: int, reset: bool) -> None:
        self.left = left
        self.reset = reset
        self.sending = 0  # links whose last bytes are under way
        self.used_up = threading.Event()
        self.cutting: asyncio.Task[None] | None = None


class Way:
    """One direction, for all connections, as it is just now."""

    def __init__(self) -> None:
        self.swallows = False
        self.delay = 0.0
        self.rate: float | None = None
        self.allowance: Allowance | None = None
        self.passed = 0


class Network:
    """Both directions, and word of a change to those who wait for something else."""

    def __init__(self) -> None:
        self.ways: dict[Side, Way] = {"client": Way(), "server": Way()}
        self._change = asyncio.Event()

    def change(self, to: Side | None = None, **properties: object) -> None:
        """Set properties of one way, or of both."""
        for side, way in self.ways.items():
            if to in (None, side):
                for name, value in properties.items():
                    setattr(way, name, value)
        self._change.set()
        self._change = asyncio.Event()

    def retract(self, allowance: Allowance) -> None:
        """Let everything pass again, unless a newer allowance says otherwise."""
        for side, way in self.ways.items():
            if way.allowance is allowance:
                self.change(side, allowance=None)

    async def changed(self, within: float | None = None) -> bool:
        """Wait; True as soon as something is changed, False if nothing was in that time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._change.wait()
                return True
        return False


class Link:
    """A client's connection, and ours to the server on its behalf."""

    def __init__(
        self,
        client: socket.socket,
        target: tuple[str, int],
        network: Network,
        use_up: Callable[[Allowance], None],
    ) -> None:
        self.damaged = False
        self.over = False  # cut: its tasks learn of it later than nothing more may pass
        self.resets = True
        self._client = client
        self._target = target
        self._network = network
        self._use_up = use_up
        self._ends = [client]
        _prepare(client)

    async def run(self) -> None:
        """Forward both ways until both have ended, or one has failed, or it is cut."""
        try:
            if self._network.ways["server"].swallows:
                await self._lose()
            server = await self._connect()
            async with asyncio.TaskGroup() as both:
                both.create_task(self._forward(self._client, server, "server"))
                both.create_task(self._forward(server, self._client, "client"))
            self.resets = False
        except* OSError:
            pass  # the other side learns of it by a reset

    def close(self) -> None:
        """Give up both ends, after `run` has come to its own."""
        for end in self._ends:
            if self.resets:
                # No time to linger: a reset, instead of what is still to be sent.
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.close()

    async def _connect(self) -> socket.socket:
        loop = asyncio.get_running_loop()
        host, port = self._target
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, _, _, address = found[0]
        server = socket.socket(family, kind)
        self._ends.append(server)
        _prepare(server)
        await loop.sock_connect(server, address)
        return server

    async def _lose(self) -> None:
        self.damaged = True
        with suppress(OSError):
            while await asyncio.get_running_loop().sock_recv(self._client, CHUNK):
                pass
        await asyncio.Event().wait()

    async def _forward(self, source: socket.socket, target: socket.socket, to: Side) -> None:
        pipe = _Pipe()
        async with asyncio.TaskGroup() as ends:
            ends.create_task(self._fill(pipe, source, to))
            ends.create_task(self._empty(pipe, target, to))

    async def _fill(self, pipe: _Pipe, source: socket.socket, to: Side) -> None:
        loop = asyncio.get_running_loop()
        data = None
        while data != b"":
            try:
                data = await loop.sock_recv(source, CHUNK)
            except OSError:
                if not self._network.ways[to].swallows:
                    raise
                data = b""
            await pipe.put(loop.time(), data)

    async def _empty(self, pipe: _Pipe, target: socket.socket, to: Side) -> None:
        loop = asyncio.get_running_loop()
        way = self._network.ways[to]
        while True:
            arrived, data = await pipe.head()
            if self.over:
                return
            if way.swallows:
                self.damaged = True
                pipe.drop(len(data))
            elif (early := arrived + way.delay - loop.time()) > 0:
                await self._network.changed(within=early)
            elif not data:
                target.shutdown(socket.SHUT_WR)
                return
            else:
                pipe.drop(await self._send(data, target, way))

    async def _send(self, data: bytes, target: socket.socket, way: Way) -> int:
        """Send as much as may be sent at once; how much it was."""
        if way.rate is not None:
            data = data[: max(1, int(way.rate / 20))]
            if await self._network.changed(within=len(data) / way.rate) or self.over:
                return 0
        allowance = way.allowance
        if allowance is None:
            way.passed += len(data)  # before it can be seen to have arrived
            await asyncio.get_running_loop().sock_sendall(target, data)
        elif not allowance.left:
            if not allowance.sending:
                self._use_up(allowance)
            await self._network.changed()
            return 0
        else:
            data = data[: allowance.left]
            allowance.left -= len(data)
            way.passed += len(data)
            allowance.sending += 1
            try:
                await asyncio.get_running_loop().sock_sendall(target, data)
                if not allowance.left:
                    await _delivered(target)
            finally:
                allowance.sending -= 1
                if not allowance.left and not allowance.sending:
                    self._use_up(allowance)
        return len(data)


class _Pipe:
    """What is under way in one direction of one link; `b""` is its end."""

    def __init__(self) -> None:
        self._chunks: deque[tuple[float, bytes]] = deque()
        self._size = 0
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()

    async def put(self, arrived: float, data: bytes) -> None:
        while self._size >= HELD:
            self._emptied.clear()
            await self._emptied.wait()
        self._chunks.append((arrived, data))
        self._size += len(data)
        self._filled.set()

    async def head(self) -> tuple[float, bytes]:
        while not self._chunks:
            self._filled.clear()
            await self._filled.wait()
        return self._chunks[0]

    def drop(self, size: int) -> None:
        arrived, data = self._chunks.popleft()
        if size < len(data):
            self._chunks.appendleft((arrived, data[size:]))
        self._size -= size
        self._emptied.set()


def _prepare(end: socket.socket) -> None:
    end.setblocking(False)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


async def _delivered(end: socket.socket) -> None:
    """Wait until the other side's kernel has it all: a reset would throw away what it has not."""
    for _ in range(1000):
        if not any(fcntl.ioctl(end, termios.TIOCOUTQ, bytes(4))):
            return
        await asyncio.sleep(0.001)
