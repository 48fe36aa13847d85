"""Who is asking, and whether that is enough."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
from dataclasses import dataclass
from typing import Any, Literal

from starlette.requests import Request

from queuecraft.http.refusal import FOREIGN_SITES, Refusal, foreign
from queuecraft.http.secrets import Secrets
from queuecraft.http.session import COOKIE, Role, Session, Sessions
from queuecraft.observers.log import printable

__all__ = ["HEADER", "SCHEMES", "Access", "Role", "Who", "address_of", "cookies_of"]

log = logging.getLogger("queuecraft.http")

HEADER = "X-QueueCraft"
"""What a page of ours sends with every change: no form and no foreign page can."""

# Set by a proxy: whoever asks then comes from elsewhere, whatever the socket says.
_FORWARDED = (
    *("forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip"),
    *("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-server"),
)

SCHEMES: dict[str, Any] = {
    "read": {
        "type": "http",
        "scheme": "bearer",
        "description": "QUEUECRAFT_READ_TOKEN, or QUEUECRAFT_TOKEN.",
    },
    "operator": {"type": "http", "scheme": "bearer", "description": "QUEUECRAFT_TOKEN."},
    "cron": {"type": "http", "scheme": "bearer", "description": "CRON_SECRET."},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "Given by POST /session; it does what its token does. Changes also need "
        f"the header {HEADER}: 1.",
    },
}
"""The security schemes of the OpenAPI document."""


@dataclass(frozen=True, slots=True)
class Who:
    """Somebody who asks, and what shows it."""

    role: Role
    address: str
    means: Literal["nothing", "token", "cookie", "machine"] = "nothing"
    name: str = ""
    expires_at: float | None = None


class Access:
    """Tells roles by the bearer token, or by the cookie of a session. `trusted` makes an operator
    of whoever sits at this machine: for a service on a loopback address that nobody gave a token.

    >>> access = Access(Secrets(token="an-operator's-token"))
    >>> scope = {"type": "http", "headers": [(b"authorization", b"Bearer an-operator's-token")]}
    >>> access.role(Request(scope))
    <Role.OPERATOR: 2>
    """

    def __init__(self, secrets: Secrets, *, trusted: bool = False) -> None:
        self.sessions = Sessions()
        self._operator = _digest(secrets.token)
        self._reader = _digest(secrets.read_token)
        self._cron = _digest(secrets.cron_secret)
        self._trusted = trusted and not secrets.opens_anything

    def role(self, request: Request) -> Role:
        """The role of whoever asks; a wrong token is refused, no token is anybody."""
        return self.who(request).role

    def who(self, request: Request) -> Who:
        """Whoever asks. A token goes before a cookie, and a wrong one is refused; a cookie whose
        session is over is nobody's."""
        address = address_of(request)
        if self._trusted:
            if not _at_this_machine(request):
                return Who(Role.ANYBODY, address)
            session = self._session(request)
            name = "" if session is None else session.name
            return Who(Role.OPERATOR, address, "machine", name)
        given = _bearer(request)
        if given is not None:
            role = self._token(given)
            if role is None:
                raise self._unknown(request, "an unknown token")
            return Who(role, address, "token")
        session = self._session(request)
        if session is None:
            return Who(Role.ANYBODY, address)
        return Who(session.role, address, "cookie", session.name, session.expires_at)

    def opened_by(self, token: str, request: Request) -> Role | None:
        """The role that a token signs in as; None for a wrong one."""
        if self._trusted:
            return Role.OPERATOR if not token and _at_this_machine(request) else None
        return self._token(token.encode("utf-8", "surrogatepass"))

    def needs_token(self, request: Request) -> bool:
        """Whether this one has to show a token at all."""
        return not (self._trusted and _at_this_machine(request))

    def reader(self, request: Request) -> None:
        """Let in who may look."""
        self._need(Role.READER, request)

    def operator(self, request: Request) -> None:
        """Let in who may change things."""
        who = self._need(Role.OPERATOR, request)
        if who.means == "cookie" and request.headers.get(HEADER) != "1":
            raise Refusal(
                403,
                "HeaderMissing",
                "a change by cookie needs a header that no foreign page can send",
                f"send '{HEADER}: 1'",
            )
        if who.means == "machine" and request.headers.get("sec-fetch-site") in FOREIGN_SITES:
            # The door lets foreign pages look, without an answer; some looks leave a trace.
            raise foreign()

    def cron(self, request: Request) -> None:
        """Let in the clock. A failed attempt is logged, with its address and never its secret."""
        if not _same(_bearer(request) or b"", self._cron):
            why = "it sent no valid CRON_SECRET"
            if self._cron is None:
                why = "CRON_SECRET is not set, so nobody can"
            log.warning("refused to clean up for %s: %s", address_of(request), why)
            raise Refusal(
                401,
                "Unauthorized",
                "POST /cron/cleanup needs the cron secret",
                "send 'Authorization: Bearer' and the CRON_SECRET that the service was given; "
                "without one it refuses everybody",
                {"WWW-Authenticate": 'Bearer realm="cron"'},
            )

    def _token(self, given: bytes) -> Role | None:
        # Both are compared, so that the time taken does not tell which one was nearly right.
        operator, reader = _same(given, self._operator), _same(given, self._reader)
        if operator:
            return Role.OPERATOR
        return Role.READER if reader else None

    def _session(self, request: Request) -> Session | None:
        for cookie in cookies_of(request):
            session = self.sessions.find(cookie)
            if session is not None:
                return session
        return None

    def _need(self, least: Role, request: Request) -> Who:
        who = self.who(request)
        if who.role is Role.ANYBODY:
            raise self._unknown(request, "no token")
        if who.role < least:
            raise Refusal(
                403,
                "Forbidden",
                "the read token may look and change nothing",
                "send the operator token, QUEUECRAFT_TOKEN",
            )
        return who

    def _unknown(self, request: Request, what: str) -> Refusal:
        # The path as it is matched is ours; what was really asked for may hold anything.
        path = printable(request.url.path[:200]) if "path" in request.scope else ""
        log.info("refused %s for %s: %s", path, address_of(request), what)
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
    if request.scope.get("http_version") == "1.0":
        return False  # no browser speaks it, but proxies that add no header do
    client = request.client
    try:
        # A socket of the file system has no address, and is as near.
        return client is None or not client.host or ipaddress.ip_address(client.host).is_loopback
    except ValueError:
        return False


def address_of(request: Request) -> str:
    """Where a request comes from."""
    return "somebody" if request.client is None else printable(str(request.client.host)[:100])


def cookies_of(request: Request) -> list[str]:
    """The sessions that a browser names. There may be several: a page of another port, or of a
    host beside this one, can set a cookie of the same name."""
    found: list[str] = []
    for line in request.headers.getlist("cookie"):
        for part in line.split(";"):
            name, _, value = part.strip().partition("=")
            if name == COOKIE and len(value) <= 100:
                found.append(value)
    return found[:10]
