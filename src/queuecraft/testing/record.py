"""What a mock remembers of each message that was published."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from queuecraft.codec import Codec
from queuecraft.drivers.base import Outgoing
from queuecraft.model.types import HeaderValue


class Record:
    """A message that was published: what it said, and how it was sent.

    >>> record = Record(Outgoing(b'{"id":"o-1"}', "m-1", "events", "order.placed"), Codec())
    >>> record.event, record.payload, record.delay
    ('order.placed', {'id': 'o-1'}, None)
    """

    def __init__(self, message: Outgoing, codec: Codec) -> None:
        self.message = message
        """The message as the broker would have got it."""
        self._codec = codec

    @property
    def event(self) -> str:
        """The event it was published as, or the name of the queue it was sent to."""
        return self.message.routing_key

    @property
    def queue(self) -> str | None:
        """The queue it was sent to; None for an event."""
        return self.message.queue

    @property
    def exchange(self) -> str:
        """The exchange it was published to."""
        return self.message.exchange

    @property
    def id(self) -> str:
        """Its id."""
        return self.message.id

    @property
    def payload(self) -> Any:
        """Its payload in plain values; `MockQueueCraft.published` gives it with its type."""
        return self.payload_as(None)

    @property
    def headers(self) -> dict[str, HeaderValue]:
        """Its headers."""
        return dict(self.message.headers)

    @property
    def key(self) -> str | None:
        """The key within which order is kept."""
        return self.message.key

    @property
    def priority(self) -> int:
        """Its priority."""
        return self.message.priority

    @property
    def correlation_id(self) -> str | None:
        """What it belongs to."""
        return self.message.correlation_id

    @property
    def deliver_at(self) -> datetime | None:
        """When it is due; None for at once."""
        return _moment(self.message.due_at)

    @property
    def expires_at(self) -> datetime | None:
        """When it expires; None for never."""
        return _moment(self.message.expires_at)

    @property
    def delay(self) -> float | None:
        """For how many seconds it was delayed, to the millisecond."""
        due, published = self.message.due_at, self.message.timestamp
        return None if due is None or published is None else round(due - published, 3)

    def payload_as(self, payload_type: Any) -> Any:
        """Its payload, read as this type."""
        read = self._codec.decoder(payload_type)
        message = self.message
        return read(message.body, message.content_type, message.content_encoding)

    def __repr__(self) -> str:
        where = self.event if self.queue is None else self.queue
        return f"<Record {self.id} to {where!r}: {self.message.body[:60]!r}>"


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
