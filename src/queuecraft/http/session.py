"""Who has signed in: sessions in memory, and a door that slows down who guesses."""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

COOKIE: Final = "queuecraft_session"
LIFETIME = 12 * 3600.0  # seconds
MOST = 1000  # sessions
WRONG = 5  # sign-ins from one address in a minute
WRONG_IN_ALL = 50
MINUTE = 60.0


class Role(IntEnum):
    """What somebody may do; each may do what those before it may."""

    ANYBODY = 0
    READER = 1
    OPERATOR = 2


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody who has signed in."""

    role: Role
    name: str
    expires_at: float


class Sessions:
    """Sessions by the random text in a cookie. Only its digest is kept.

    >>> sessions = Sessions()
    >>> cookie, session = sessions.begin(Role.READER, "ada")
    >>> sessions.find(cookie).name, sessions.find("a guess")
    ('ada', None)
    >>> sessions.end(cookie)
    >>> sessions.find(cookie)
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._sessions: dict[bytes, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, role: Role, name: str) -> tuple[str, Session]:
        """A session, always under a new text: one that somebody else chose opens nothing."""
        now = self._now()
        for key in [key for key, each in self._sessions.items() if each.expires_at <= now]:
            del self._sessions[key]
        while len(self._sessions) >= MOST:
            # Readers first, so that a reader's token cannot sign operators out.
            oldest = min(
                self._sessions.items(), key=lambda item: (item[1].role, item[1].expires_at)
            )
            del self._sessions[oldest[0]]
        cookie = secrets.token_urlsafe(32)
        session = Session(role, name, now + LIFETIME)
        self._sessions[_digest(cookie)] = session
        return cookie, session

    def find(self, cookie: str) -> Session | None:
        """The session of a cookie, while it lasts."""
        session = self._sessions.get(_digest(cookie))
        return None if session is None or session.expires_at <= self._now() else session

    def end(self, cookie: str) -> None:
        """Sign out."""
        self._sessions.pop(_digest(cookie), None)

    def clear(self) -> None:
        """Sign everybody out."""
        self._sessions.clear()


class Throttle:
    """Counts wrong sign-ins: after too many, none is tried for a while, not even a right one.

    >>> throttle = Throttle()
    >>> for _ in range(5):
    ...     throttle.wrong("10.0.0.1")
    >>> throttle.wait("10.0.0.1") > 0, throttle.wait("10.0.0.2")
    (True, 0.0)
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._wrong: deque[tuple[float, str]] = deque(maxlen=WRONG_IN_ALL)

    def wait(self, address: str) -> float:
        """Seconds until this address may try again."""
        now = self._now()
        while self._wrong and self._wrong[0][0] <= now - MINUTE:
            self._wrong.popleft()
        near = _network(address)
        own = [at for at, where in self._wrong if where == near]
        if len(own) >= WRONG:
            return own[-WRONG] + MINUTE - now
        if len(self._wrong) >= WRONG_IN_ALL:
            return self._wrong[0][0] + MINUTE - now
        return 0.0

    def wrong(self, address: str) -> None:
        """One more."""
        self._wrong.append((self._now(), _network(address)))


def _network(address: str) -> str:
    """The address; of the sixth version only what belongs to one household."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:100]
    if found.version == 6 and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)


def _digest(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode("utf-8", "surrogatepass")).digest()
