"""A delayed message as a person sees it while it waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from queuecraft.codec.reason import shorten
from queuecraft.model.errors import ConfigError, PayloadError
from queuecraft.model.types import Headers
from queuecraft.stores.base import START, Cursor, Waiting

PREVIEW = 200  # characters of a payload
WHOLE = 65536  # bytes of a body that are decoded for it
FIRST = datetime.min.replace(tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedMessage:
    """A message that waits for its time. What it carries was written by whoever sent it: escape
    it before you show it.

    >>> noon = datetime(2030, 1, 1, 12, tzinfo=UTC)
    >>> DelayedMessage(id="m-1", target="billing", kind="queue", due_at=noon, added_at=noon).size
    0
    """

    id: str
    target: str
    """The event, or the queue, it is for."""
    kind: Literal["event", "queue"]
    due_at: datetime
    added_at: datetime
    size: int = 0
    """Bytes of the payload, as it is stored."""
    headers: Headers = field(default_factory=dict)
    preview: str = ""
    """The beginning of the payload."""
    key: str | None = None
    correlation_id: str | None = None
    failures: int = 0
    """How often it was due and its queue would not take it."""

    @classmethod
    def of(cls, waiting: Waiting, decode: Callable[..., Any]) -> DelayedMessage:
        """As it waits."""
        message = waiting.message
        return cls(
            id=message.id,
            target=message.routing_key if message.queue is None else message.queue,
            kind="event" if message.queue is None else "queue",
            due_at=moment(waiting.due),
            added_at=moment(waiting.added),
            size=len(message.body),
            headers=message.headers,
            preview=_preview(waiting, decode),
            key=message.key,
            correlation_id=message.correlation_id,
            failures=waiting.failures,
        )


@dataclass(frozen=True, slots=True)
class DelayedPage:
    """Some delayed messages, the next due first; `next` is where the following page begins.

    >>> page = DelayedPage(())
    >>> len(page), list(page), page.next
    (0, [], None)
    """

    messages: tuple[DelayedMessage, ...]
    next: str | None = None

    def __iter__(self) -> Iterator[DelayedMessage]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    def __getitem__(self, at: int) -> DelayedMessage:
        return self.messages[at]


def moment(seconds: float) -> datetime:
    """A time as people write it; one that cannot be written is the nearest that can.

    >>> moment(0.0).year, moment(1e300).year
    (1970, 9999)
    """
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return LAST if seconds > 0 else FIRST


def written(cursor: Cursor) -> str:
    """A place in the list, as text.

    >>> read(written((60.5, "m-1")))
    (60.5, 'm-1')
    """
    due, id = cursor
    return f"{due!r}_{id}"


def read(text: str | None) -> Cursor:
    """The place that a text stands for."""
    if text is None:
        return START
    due, found, id = text.partition("_")
    try:
        if found:
            return float(due), id
    except ValueError:
        pass
    raise ConfigError(f"after={shorten(repr(text), 60)}: expected the `next` of another page")


def _preview(waiting: Waiting, decode: Callable[..., Any]) -> str:
    message = waiting.message
    body = message.body
    if len(body) <= WHOLE:
        try:
            payload = decode(body, message.content_type, message.content_encoding)
            text = msgspec.json.encode(payload).decode()
            return shorten(text, PREVIEW)
        except (PayloadError, ConfigError, TypeError, ValueError, RecursionError):
            pass
    elif message.content_encoding is None:
        try:
            return shorten(body[:PREVIEW].decode() + "…", PREVIEW)
        except UnicodeDecodeError:
            pass
    return f"<{len(body)} bytes>"
