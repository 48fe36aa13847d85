"""A network that fails on command: a TCP proxy in front of a broker.

It runs in a thread of its own, so it does its work while the test's own loop is busy or blocked.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from tests.brokers.port import Port
from tests.link import Allowance, Link, Network, Side

T = TypeVar("T")


class Proxy:
    """Forwards connections to a server, until it is told to misbehave.

    What it is told holds for the connections it has and for those to come, until `restore()`.
    Its methods may be called from any thread, and have taken effect when they return.

        with Proxy.to(rabbitmq_url) as proxy:
            qc = QueueCraft(proxy.url(rabbitmq_url))
            ...
            proxy.cut()
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._network = Network()
        self._links: dict[Link, asyncio.Task[None]] = {}
        self._accepted = 0

    @classmethod
    def to(cls, url: str) -> Self:
        """A proxy to the server that a URL names, with its port."""
        parts = urlsplit(url)
        if parts.hostname is None or parts.port is None:
            raise ValueError("a proxy needs host and port of the server: scheme://host:port")
        return cls(parts.hostname, parts.port)

    def __enter__(self) -> Self:
        self._port = Port()
        self._listener: socket.socket | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self.restore()
        return self

    def __exit__(self, *_: object) -> None:
        self.refuse()
        self.cut()
        self._do(self._finish())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._port.close()

    # -- what it knows -----------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """Where it listens, on 127.0.0.1; the same after `refuse()` and `restore()`."""
        return self._port.number

    def url(self, original: str) -> str:
        """The same URL, by way of the proxy."""
        parts = urlsplit(original)
        credentials, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{credentials}{at}127.0.0.1:{self.port}").geturl()

    @property
    def accepted(self) -> int:
        """How many connections there have been."""
        return self._accepted

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._links)

    def passed(self, *, to: Side) -> int:
        """How many bytes it has handed on to clients, or to the server, since it exists."""
        return self._network.ways[to].passed

    # -- what it does ------------------------------------------------------------------------------

    def cut(self, *, reset: bool = True) -> int:
        """Break all connections; how many. With `reset=False` they end in order, as at a shutdown.

        New ones are let through.
        """
        return self._do(self._cut(reset))

    def cut_after(self, size: int, *, to: Side, reset: bool = True) -> threading.Event:
        """Break all connections, once, when exactly so many more bytes have reached that side.

        They are counted from now on, over all connections. With 0, the next byte is one too many.
        The event is set when it has happened.
        """
        allowance = Allowance(size, reset)
        self._do(self._change(to, allowance=allowance))
        return allowance.used_up

    def black_hole(self) -> None:
        """Take everything and hand nothing on, not even the end of a connection.

        A connection that lost bytes in it could not go on unharmed: `restore()` breaks it.
        """
        self._do(self._change(swallows=True))

    def refuse(self) -> None:
        """Refuse new connections. Those that are open stay, unless you `cut()` them as well."""
        self._do(self._refuse())

    def delay(self, seconds: float, *, to: Side | None = None) -> None:
        """Hand everything on so much later, on its way to that side, or both ways."""
        self._do(self._change(to, delay=seconds))

    def throttle(self, bytes_per_second: float, *, to: Side | None = None) -> None:
        """Hand on no more than this, per connection, on the way to that side, or both ways."""
        self._do(self._change(to, rate=bytes_per_second))

    def restore(self) -> None:
        """Be a good network again."""
        self._do(self._restore())

    # -- in the thread -----------------------------------------------------------------------------

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _change(self, to: Side | None = None, **properties: object) -> None:
        self._network.change(to, **properties)

    async def _restore(self) -> None:
        self._network.change(swallows=False, delay=0.0, rate=None, allowance=None)
        await self._break([link for link in self._links if link.damaged], reset=True)
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
            self._listener.setblocking(False)
            self._loop.add_reader(self._listener, self._accept)

    async def _refuse(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def _accept(self) -> None:
        if self._listener is None:
            return
        with suppress(BlockingIOError):
            while True:
                client, _ = self._listener.accept()
                link = Link(client, self._target, self._network, self._use_up)
                self._accepted += 1
                self._links[link] = task = self._loop.create_task(link.run())
                task.add_done_callback(partial(self._ended, link))

    def _ended(self, link: Link, _: asyncio.Task[None]) -> None:
        link.close()
        del self._links[link]

    async def _cut(self, reset: bool) -> int:
        self._accept()  # those that wait for it have been connected, as far as they know
        return await self._break([*self._links], reset)

    async def _break(self, links: Sequence[Link], reset: bool) -> int:
        tasks = [self._links[link] for link in links]
        for link in links:
            link.over = True
            link.resets = reset
            self._links[link].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return len(tasks)

    def _use_up(self, allowance: Allowance) -> None:
        async def cut() -> None:
            await self._cut(allowance.reset)
            self._network.retract(allowance)
            allowance.used_up.set()

        if allowance.cutting is None:
            # By a task of its own: the link that notices is among those that are cut.
            allowance.cutting = self._loop.create_task(cut())

    async def _finish(self) -> None:
        this = asyncio.current_task()
        await asyncio.gather(*(task for task in asyncio.all_tasks() if task is not this))
