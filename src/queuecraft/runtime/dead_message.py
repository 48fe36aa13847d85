"""One dead letter, and which of them are meant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Final, TypeAlias

from queuecraft.codec.attempts import Attempt, attempts
from queuecraft.codec.headers import (
    DEAD_LETTER,
    ERROR,
    ERROR_TYPE,
    FAILED_AT,
    ORIGINAL_QUEUE,
    ORIGINAL_ROUTING_KEY,
    REASON,
    RETRY_COUNT,
    TRACEBACK,
    count,
    strip_broker_owned,
)
from queuecraft.model.envelope import Delivery
from queuecraft.model.fingerprint import fingerprint
from queuecraft.model.routing import topic_matches
from queuecraft.model.types import HeaderValue

Death: TypeAlias = tuple[str, datetime | None]

FOREIGN: Final = "foreign-"  # how drivers begin the id that a message did not come with
_ACQUIRED: Final = "x-acquired-count"  # a quorum queue's own: each look makes it one more


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadMessage:
    """One dead letter: the message, and the story of its failure.

    >>> DeadMessage(id="m-1", queue="billing", event="order.placed", error_type="KeyError").queue
    'billing'
    """

    id: str
    queue: str | None
    event: str
    reason: str = ""
    error: str = ""
    error_type: str = ""
    traceback: str = ""
    failures: int = 0
    failed_at: datetime | None = None
    key: str | None = None
    body: bytes = b""
    content_type: str | None = None
    content_encoding: str | None = None
    headers: Mapping[str, HeaderValue] = field(default_factory=dict)
    attempts: tuple[Attempt, ...] = ()
    """The last ten that failed, the oldest first."""

    @classmethod
    def of(cls, delivery: Delivery) -> DeadMessage:
        """Read the story from the headers; whatever is missing or odd is left empty."""
        sent, headers = delivery.sent, delivery.sent.headers

        def text(name: str) -> str:
            value = headers.get(name, "")
            return value if isinstance(value, str) else ""

        when = headers.get(FAILED_AT)
        return cls(
            id=sent.id,
            queue=text(ORIGINAL_QUEUE) or None,
            event=text(ORIGINAL_ROUTING_KEY) or sent.routing_key,
            reason=text(REASON),
            error=text(ERROR),
            error_type=text(ERROR_TYPE),
            traceback=text(TRACEBACK),
            failures=count(headers, RETRY_COUNT),
            failed_at=moment(when),
            key=sent.key,
            body=sent.body,
            content_type=sent.content_type,
            content_encoding=sent.content_encoding,
            headers={name: value for name, value in headers.items() if name not in DEAD_LETTER},
            attempts=attempts(headers),
        )

    @property
    def death(self) -> Death:
        """What tells it from the same message that died at another time: its id and when it failed.
        What came without an id has another one whenever it is looked at, and is known by its
        content instead; those that are alike in all of it have one death."""
        return self._content() if self._is_nameless() else self.id, self.failed_at

    @property
    def fingerprint(self) -> str:
        """The group of failures it belongs to."""
        return fingerprint(self.error_type or self.reason, self.error, self.traceback)

    def _is_nameless(self) -> bool:
        """Whether its id was made up by the driver, which may have been at this very look. What is
        nothing but a body was put there by another program, as with RPUSH, and has none either."""
        if self.id.startswith(FOREIGN):
            return True
        if self.failed_at is not None:
            return False
        return self == DeadMessage(id=self.id, queue=None, event="", body=self.body)

    def _content(self) -> str:
        headers = strip_broker_owned(self.headers)
        headers.pop(_ACQUIRED, None)
        told = (
            self.queue,
            self.event,
            self.reason,
            self.key,
            self.content_type,
            sorted(headers.items()),
        )
        digest = blake2b(repr(told).encode(), digest_size=16)
        digest.update(self.body)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which dead letters are meant; what is left out does not matter.

    `error` is found in the error's type or text, `event` is a name or pattern, ages are seconds.
    `deaths` are those of letters, as they tell them: what died again since is another.

    >>> letter = DeadMessage(id="m-1", queue="billing", event="order.placed", error_type="KeyError")
    >>> Filter(error="key", event="order.*").takes(letter)
    True
    >>> Filter(event="user.*").takes(letter)
    False
    """

    error: str | None = None
    event: str | None = None
    reason: str | None = None
    fingerprint: str | None = None
    ids: frozenset[str] | None = None
    deaths: frozenset[Death] | None = None
    older_than: float | None = None
    newer_than: float | None = None

    def takes(self, letter: DeadMessage, now: datetime | None = None) -> bool:
        """Whether a dead letter is one of those meant."""
        if self.error is not None:
            text = f"{letter.error_type}: {letter.error}".casefold()
            if self.error.casefold() not in text:
                return False
        if self.event is not None and not topic_matches(self.event, letter.event):
            return False
        if self.reason is not None and self.reason != letter.reason:
            return False
        if self.fingerprint is not None and self.fingerprint != letter.fingerprint:
            return False
        if self.ids is not None and letter.id not in self.ids:
            return False
        if self.deaths is not None and letter.death not in self.deaths:
            return False
        if self.older_than is None and self.newer_than is None:
            return True
        if letter.failed_at is None:
            return False
        age = ((now or datetime.now(UTC)) - letter.failed_at) / timedelta(seconds=1)
        return not (
            (self.older_than is not None and age < self.older_than)
            or (self.newer_than is not None and age > self.newer_than)
        )


def moment(value: object) -> datetime | None:
    """A time in milliseconds, as headers have it; None for anything else.

    >>> moment(1500), moment("yesterday")
    (datetime.datetime(1970, 1, 1, 0, 0, 1, 500000, tzinfo=datetime.timezone.utc), None)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return datetime.fromtimestamp(value / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
