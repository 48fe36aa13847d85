"""The server under the HTTP service, started and stopped by whoever runs it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Generator

import uvicorn

from queuecraft.http.service import Service


class Server(uvicorn.Server):
    """Serves on a socket that is open already, and leaves signals alone.

    `stop` lets go of those who listen to events first: they would keep it from ending.
    """

    def __init__(self, service: Service, *, patience: float) -> None:
        super().__init__(
            uvicorn.Config(
                service.api,
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                lifespan="on",
                ws="none",
                timeout_graceful_shutdown=max(1, round(patience)),
            )
        )
        self._service = service

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Signals are the command's."""
        yield

    async def serve_on(self, listening: socket.socket) -> None:
        """Until it is stopped."""
        if listening.family in (socket.AF_INET, socket.AF_INET6):
            # Connections inherit it. Without it, an answer in two parts waits 40 ms for the client
            # to say that it has the first; asyncio sets it only on sockets it made itself.
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await self.serve(sockets=[listening])

    def stop(self) -> None:
        """Take no more requests, finish those that run."""
        self._service.stop()
        self.should_exit = True

    def force(self) -> None:
        """Stop at once."""
        self.stop()
        self.force_exit = True
