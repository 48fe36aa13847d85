"""The door of the HTTP service: which hosts it answers for, how much it reads, what it adds."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect

from queuecraft.http.names import whole_names
from queuecraft.http.refusal import FOREIGN_SITES, Refusal, foreign

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("queuecraft.http")

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Added to every answer that does not set them itself."""

DRAINED = 8 * 1024 * 1024  # bytes of a refused body that are still taken
PATIENCE = 5.0  # seconds for that
SLOWEST = 10.0  # seconds between two parts of a body

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class Hosts:
    """The names a service answers to. Addresses in numbers always pass: the page of a stranger
    can make a name of its own lead here, but not a number.

    >>> hosts = Hosts(["localhost", "*.example.com"])
    >>> [hosts.serve(each) for each in ("localhost:80", "[::1]:80", "a.example.com", "evil.test")]
    [True, True, True, False]
    """

    def __init__(self, names: Sequence[str]) -> None:
        lowered = [name.lower().rstrip(".") for name in names]
        self._all = "*" in lowered
        self._names = frozenset(lowered)
        self._suffixes = tuple(name[1:] for name in lowered if name.startswith("*."))

    def serve(self, host: str) -> bool:
        """Whether a `Host` header names this service."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            return False
        if not name or "/" in host or "@" in host or "?" in host or "#" in host:
            return False
        return self._all or name in self._names or name.endswith(self._suffixes) or _number(name)


class Guard:
    """Wraps an ASGI app: refuses strangers' host names, foreign pages and bodies too large, adds
    headers that keep browsers careful, and answers mistakes of ours without their stack."""

    def __init__(self, app: ASGIApp, *, hosts: Hosts, max_body: int) -> None:
        self._app = app
        self._hosts = hosts
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        whole_names(scope)
        body = _Body(Headers(scope=scope), receive, self._max_body)
        started = False

        async def careful(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if message["status"] >= 400:
                    await body.drain()
            await send(message)

        try:
            self._check(scope["method"], Headers(scope=scope))
            await self._app(scope, body.receive, careful)
        except Refusal as refusal:
            if started:
                raise
            await refusal.answer()(scope, receive, careful)
        except ClientDisconnect:
            pass  # nobody is left to be told
        except Exception as error:
            # Told in the log and not to a stranger: a stack shows what code runs here.
            log.exception("a request failed: %s", type(error).__name__)
            if started:
                raise
            sorry = Refusal(
                500, "InternalError", "this went wrong here", "the log of the service tells more"
            )
            await sorry.answer()(scope, receive, careful)

    def _check(self, method: str, headers: Headers) -> None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._hosts.serve(hosts[0]):
            raise Refusal(
                400,
                "UnknownHost",
                "this service does not answer to the host the request names",
                "ask for it by its address, or start it with this name among its allowed hosts",
            )
        if method not in _SAFE and _foreign(headers, hosts[0]):
            raise foreign()
        length = headers.get("content-length", "")
        if length and "transfer-encoding" in headers:
            # A proxy that believes the other one would take the rest for somebody's next request.
            raise Refusal(
                400,
                "AmbiguousLength",
                "the request tells its length in two ways",
                "send either Content-Length or Transfer-Encoding",
                {"Connection": "close"},
            )
        if length.isdecimal() and int(length[:20]) > self._max_body:
            raise _too_large(self._max_body)


class _Body:
    """What a client sends, counted on its way in."""

    def __init__(self, headers: Headers, receive: Receive, most: int) -> None:
        self._receive = receive
        self._most = most
        self._read = 0
        sent = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        self._left = sent and "expect" not in headers  # who asks first has sent nothing yet

    async def receive(self) -> Message:
        """The next part. Raises a `Refusal` when it does not come, or is one too many."""
        try:
            # Once all of it is here, only the end of the connection is to come: any time.
            async with asyncio.timeout(SLOWEST if self._left else None):
                message = await self._receive()
        except TimeoutError:
            self._left = False
            raise Refusal(
                408,
                "TooSlow",
                f"the body did not come within {SLOWEST:g} s",
                "send it again",
                {"Connection": "close"},
            ) from None
        if message["type"] == "http.request":
            self._left = self._left and message.get("more_body", False)
            self._read += len(message.get("body", b""))
            if self._read > self._most:
                raise _too_large(self._most)
        return message

    async def drain(self) -> None:
        """Take what is left of a refused one: a connection closed on a client that still sends is
        broken for it, and it never sees the reason."""
        taken = 0
        try:
            async with asyncio.timeout(PATIENCE):
                while self._left and taken <= DRAINED:
                    message = await self._receive()
                    self._left = message.get("more_body", False)
                    taken += len(message.get("body", b""))
        except TimeoutError:
            pass


def _too_large(most: int) -> Refusal:
    return Refusal(
        413,
        "TooLarge",
        f"the body has more than {most} bytes",
        "send less, or publish it from code",
        {"Connection": "close"},
    )


def _foreign(headers: Headers, host: str) -> bool:
    """Whether a browser says that somebody else's page is asking."""
    if headers.get("sec-fetch-site") in FOREIGN_SITES:
        return True  # also of this host, by http where this is https
    origin = headers.get("origin")
    if origin is None:
        return False
    try:
        return urlsplit(origin).netloc.lower() != host.lower()
    except ValueError:
        return True


def _number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
