"""Who is asking, and whether that is enough."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
from enum import IntEnum
from typing import Any

from starlette.requests import Request

from queuecraft.http.refusal import Refusal
from queuecraft.http.secrets import Secrets
from queuecraft.observers.log import printable

log = logging.getLogger("queuecraft.http")

# Set by a proxy: whoever asks then comes from elsewhere, whatever the socket says.
_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")

SCHEMES: dict[str, Any] = {
    "read": {
        "type": "http",
        "scheme": "bearer",
        "description": "QUEUECRAFT_READ_TOKEN, or QUEUECRAFT_TOKEN.",
    },
    "operator": {"type": "http", "scheme": "bearer", "description": "QUEUECRAFT_TOKEN."},
    "cron": {"type": "http", "scheme": "bearer", "description": "CRON_SECRET."},
}
"""The security schemes of the OpenAPI document."""


class Role(IntEnum):
    """What somebody may do; each may do what those before it may."""

    ANYBODY = 0
    READER = 1
    OPERATOR = 2


class Access:
    """Tells roles by the bearer token. `trusted` makes an operator of whoever sits at this
    machine: for a service on a loopback address that nobody gave a token.

    >>> access = Access(Secrets(token="an-operator's-token"))
    >>> scope = {"type": "http", "headers": [(b"authorization", b"Bearer an-operator's-token")]}
    >>> access.role(Request(scope))
    <Role.OPERATOR: 2>
    """

    def __init__(self, secrets: Secrets, *, trusted: bool = False) -> None:
        self._operator = _digest(secrets.token)
        self._reader = _digest(secrets.read_token)
        self._cron = _digest(secrets.cron_secret)
        self._trusted = trusted and not secrets.opens_anything

    def role(self, request: Request) -> Role:
        """The role of whoever asks; a wrong token is refused, no token is anybody."""
        if self._trusted:
            return Role.OPERATOR if _at_this_machine(request) else Role.ANYBODY
        given = _bearer(request)
        if given is None:
            return Role.ANYBODY
        # Both are compared, so that the time taken does not tell which one was nearly right.
        operator, reader = _same(given, self._operator), _same(given, self._reader)
        if operator:
            return Role.OPERATOR
        if reader:
            return Role.READER
        raise self._unknown(request, "an unknown token")

    def reader(self, request: Request) -> None:
        """Let in who may look."""
        self._need(Role.READER, request)

    def operator(self, request: Request) -> None:
        """Let in who may change things."""
        self._need(Role.OPERATOR, request)

    def cron(self, request: Request) -> None:
        """Let in the clock. A failed attempt is logged, with its address and never its secret."""
        if not _same(_bearer(request) or b"", self._cron):
            why = "it sent no valid CRON_SECRET"
            if self._cron is None:
                why = "CRON_SECRET is not set, so nobody can"
            log.warning("refused to clean up for %s: %s", _address(request), why)
            raise Refusal(
                401,
                "Unauthorized",
                "POST /cron/cleanup needs the cron secret",
                "send 'Authorization: Bearer' and the CRON_SECRET that the service was given; "
                "without one it refuses everybody",
                {"WWW-Authenticate": 'Bearer realm="cron"'},
            )

    def _need(self, least: Role, request: Request) -> None:
        role = self.role(request)
        if role is Role.ANYBODY:
            raise self._unknown(request, "no token")
        if role < least:
            raise Refusal(
                403,
                "Forbidden",
                "the read token may look and change nothing",
                "send the operator token, QUEUECRAFT_TOKEN",
            )

    def _unknown(self, request: Request, what: str) -> Refusal:
        # The path as it is matched is ours; what was really asked for may hold anything.
        path = printable(request.url.path[:200]) if "path" in request.scope else ""
        log.info("refused %s for %s: %s", path, _address(request), what)
        return Refusal(
            401,
            "Unauthorized",
            f"this needs a token, and the request has {what}",
            "send 'Authorization: Bearer' and QUEUECRAFT_TOKEN or QUEUECRAFT_READ_TOKEN as the "
            "service was given them; without any it refuses everybody",
            {"WWW-Authenticate": 'Bearer realm="queuecraft"'},
        )


def _bearer(request: Request) -> bytes | None:
    """The token of a request; None if it has none, and nonsense for nonsense."""
    given = request.headers.getlist("authorization")
    if not given:
        return None
    scheme, _, token = given[0].partition(" ")
    if len(given) > 1 or scheme.lower() != "bearer":
        return b""
    return token.strip().encode("latin-1")


def _digest(secret: str | None) -> bytes | None:
    return None if secret is None else hashlib.sha256(secret.encode()).digest()


def _same(given: bytes, expected: bytes | None) -> bool:
    """In a time that depends on neither; digests hide the length too."""
    ours = hashlib.sha256(given).digest()
    return hmac.compare_digest(ours, expected or bytes(len(ours))) and expected is not None


def _at_this_machine(request: Request) -> bool:
    if any(name in request.headers for name in _FORWARDED):
        return False
    client = request.client
    try:
        # A socket of the file system has no address, and is as near.
        return client is None or not client.host or ipaddress.ip_address(client.host).is_loopback
    except ValueError:
        return False


def _address(request: Request) -> str:
    return "somebody" if request.client is None else printable(str(request.client.host)[:100])
