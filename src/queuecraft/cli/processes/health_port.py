"""The health port: one word over HTTP, for whoever restarts what is not well."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import re
from collections.abc import Callable
from http import HTTPStatus
from types import TracebackType
from typing import Self

PATIENCE = 5.0  # seconds for a whole request and its answer
LINGER = 1.0  # seconds for the client to hang up first
AT_ONCE = 64  # connections; who comes beyond that is turned away
LONGEST = 8192  # bytes of one line; a request may have 100 of them
LINES = 100

_REQUEST = re.compile(rb"([A-Z]{1,16}) (/[!-~]{0,2000}) HTTP/1\.[01]\r?\n")


class HealthPort:
    """Answers `GET /health` with 200 and `{"status": "healthy"}`, or with 503 and `"unhealthy"`;
    `GET /live` always with 200, so no answer means that the process stands still.

    >>> import asyncio
    >>> async def ask() -> bytes:
    ...     async with HealthPort("127.0.0.1", 0, lambda: True) as port:
    ...         reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
    ...         writer.write(b"GET /health HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
    ...         answer = await reader.read()
    ...         writer.close()
    ...         return answer.splitlines()[0]
    >>> asyncio.run(ask())
    b'HTTP/1.1 200 OK'
    """

    def __init__(self, host: str, port: int, healthy: Callable[[], bool]) -> None:
        self.host = host
        self.number = port
        self._healthy = healthy
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where to ask."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.number}/health"

    async def open(self) -> None:
        """Listen. Raises `OSError` with the reason in words when that is not possible."""
        try:
            self._server = await asyncio.start_server(
                self._meet, self.host, self.number, limit=LONGEST
            )
        except OSError as error:
            raise OSError(error.errno, self._why(error)) from error
        self.number = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Listen no more, and hang up on everybody."""
        if self._server is not None:
            self._server.close()
        for client in self._clients:
            client.cancel()
        await self.at_rest()

    async def at_rest(self) -> None:
        """Wait until nobody is being served."""
        while self._clients:
            await asyncio.wait(self._clients)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _why(self, error: OSError) -> str:
        place = f"{self.host}:{self.number}"
        if error.errno == errno.EADDRINUSE:
            return f"health port {place} is in use by another program; choose another"
        if error.errno == errno.EACCES:
            return f"health port {place} needs more rights; choose one above 1023"
        return f"health port {place} cannot be opened: {error.strerror or error}"

    def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= AT_ONCE:
            writer.transport.abort()
            return
        client = asyncio.ensure_future(self._serve(reader, writer))
        self._clients.add(client)
        client.add_done_callback(self._clients.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # Out of patience, with garbage, or gone: a client gets what it deserves, we go on.
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    writer.write(await self._answer(reader))
                    await writer.drain()
                async with asyncio.timeout(LINGER):
                    # Closed with something left unread, the answer would be lost on its way.
                    writer.write_eof()
                    while await reader.read(LONGEST):
                        pass
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        try:
            request = _REQUEST.fullmatch(await reader.readline())
            if request is None:
                return _response(HTTPStatus.BAD_REQUEST)
            for _ in range(LINES):
                if await reader.readline() in (b"\r\n", b"\n", b""):
                    break
            else:
                return _response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except ValueError:  # a line beyond all bounds
            return _response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        method, target = request.groups()
        page = target.partition(b"?")[0]
        if page not in (b"/health", b"/live"):
            return _response(HTTPStatus.NOT_FOUND)
        if method not in (b"GET", b"HEAD"):
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, "Allow: GET, HEAD\r\n")
        healthy, word = True, "alive"  # whoever can answer is
        if page == b"/health":
            healthy = self._healthy()
            word = "healthy" if healthy else "unhealthy"
        body = json.dumps({"status": word})
        status = HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE
        return _response(status, body=body, head=method == b"HEAD")


def _response(
    status: HTTPStatus, headers: str = "", body: str = "", *, head: bool = False
) -> bytes:
    kind = "Content-Type: application/json\r\n" if body else ""
    return (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"{kind}{headers}Content-Length: {len(body)}\r\n"
        f"Cache-Control: no-store\r\nConnection: close\r\n\r\n{'' if head else body}"
    ).encode()
