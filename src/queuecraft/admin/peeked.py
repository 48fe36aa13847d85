"""A message as a person reads it: everything it carries, and its payload where it can be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from queuecraft.model.envelope import Delivery
from queuecraft.model.errors import PayloadError
from queuecraft.model.message import DecodeBody
from queuecraft.model.types import HeaderValue
from queuecraft.runtime.successor import failures


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekedMessage:
    """A message that was looked at and stays where it is.

    `payload` is the decoded body; where it cannot be decoded it is None and `unreadable` says
    why. Everything here was written by whoever sent it: escape it before you show it.

    >>> PeekedMessage(id="m-1", queue="billing", body=b"[1]", payload=[1]).size
    3
    """

    id: str
    queue: str
    routing_key: str = ""
    headers: Mapping[str, HeaderValue] = field(default_factory=dict)
    key: str | None = None
    priority: int = 0
    published_at: datetime | None = None
    due_at: datetime | None = None
    expires_at: datetime | None = None
    attempt: int = 1
    redeliveries: int = 0
    correlation_id: str | None = None
    reply_to: str | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    body: bytes = b""
    payload: Any = None
    unreadable: str | None = None

    @property
    def size(self) -> int:
        """Bytes of its body, as it lies there."""
        return len(self.body)

    @classmethod
    def of(cls, delivery: Delivery, decode: DecodeBody) -> PeekedMessage:
        """What a delivery holds; whatever is odd about it is left empty."""
        sent = delivery.sent
        payload: Any = None
        unreadable: str | None = None
        try:
            payload = decode(sent.body, sent.content_type, sent.content_encoding)
        except PayloadError as error:
            unreadable = error.message
        return cls(
            id=sent.id,
            queue=delivery.queue,
            routing_key=sent.routing_key,
            headers=dict(sent.headers),
            key=sent.key,
            priority=sent.priority,
            published_at=_moment(sent.timestamp),
            due_at=_moment(sent.due_at),
            expires_at=_moment(sent.expires_at),
            attempt=failures(delivery) + 1,
            redeliveries=delivery.redeliveries,
            correlation_id=sent.correlation_id,
            reply_to=sent.reply_to,
            content_type=sent.content_type,
            content_encoding=sent.content_encoding,
            body=bytes(sent.body),
            payload=payload,
            unreadable=unreadable,
        )


def _moment(seconds: float | None) -> datetime | None:
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):  # a foreign sender may have put in anything
        return None
