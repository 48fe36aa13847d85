"""A message as a handler sees it: its payload, what is known of it, and how to settle it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeAlias

from queuecraft.model.envelope import Delivery
from queuecraft.model.errors import PayloadError
from queuecraft.model.outcome import UnreadablePayload
from queuecraft.model.types import Headers, T

DecodeBody: TypeAlias = Callable[[bytes, str | None, str | None], Any]
"""Turns a body, its content type and its content encoding into a payload."""


class Control(Protocol):
    """What settles a message: given to it by whoever runs the handler."""

    def attempt(self, delivery: Delivery) -> int: ...
    def ack(self, delivery: Delivery) -> Awaitable[None]: ...
    def nack(self, delivery: Delivery, requeue: bool, reason: str) -> Awaitable[None]: ...
    def retry(self, delivery: Delivery, delay: float | None) -> Awaitable[None]: ...
    def requeue(self, delivery: Delivery) -> Awaitable[None]: ...
    def dead_letter(self, delivery: Delivery, reason: str) -> Awaitable[None]: ...
    def extend(self, delivery: Delivery, seconds: float) -> None: ...
    def lapsed(self, delivery: Delivery) -> bool: ...


_UNREAD: Any = object()


class Message(Generic[T]):
    """The payload and everything known about it. Nothing here can be changed.

    A handler that returns has acknowledged its message, one that raises has failed it. To decide
    by hand, call one of `ack`, `nack`, `requeue`, `retry`, `dead_letter`, once; it takes effect
    at once, also from a sync handler. To await it is to wait until the broker was told, not a
    proof that it has heard: if the connection is lost there is no error, and the message comes
    again.

    >>> from queuecraft.testing import message_of
    >>> message = message_of({"id": "o-1"}, routing_key="order.placed")
    >>> message.payload, message.attempt, message.routing_key
    ({'id': 'o-1'}, 1, 'order.placed')
    """

    __slots__ = ("_control", "_decode", "_delivery", "_payload", "_settled")

    def __init__(self, delivery: Delivery, decode: DecodeBody, control: Control) -> None:
        self._delivery = delivery
        self._decode = decode
        self._control = control
        self._payload: Any = _UNREAD
        self._settled: str | None = None

    @property
    def payload(self) -> T:
        """The payload, decoded and validated the first time it is asked for."""
        if self._payload is _UNREAD:
            sent = self._delivery.sent
            try:
                self._payload = self._decode(sent.body, sent.content_type, sent.content_encoding)
            except PayloadError as error:
                raise UnreadablePayload(str(error)) from error
        payload: T = self._payload
        return payload

    @property
    def id(self) -> str:
        """The id it was published with; the same on every retry, redelivery and redrive."""
        return self._delivery.sent.id

    @property
    def headers(self) -> Headers:
        """Its headers, read-only: the publisher's, and QueueCraft's own beginning with `x-`."""
        return MappingProxyType(dict(self._delivery.sent.headers))

    @property
    def routing_key(self) -> str:
        """The name of its event."""
        return self._delivery.sent.routing_key

    @property
    def key(self) -> str | None:
        """The key within which order is kept, if any."""
        return self._delivery.sent.key

    @property
    def queue(self) -> str:
        """The queue it was received from."""
        return self._delivery.queue

    @property
    def attempt(self) -> int:
        """1 on the first delivery, and one more for each failure recorded."""
        return self._control.attempt(self._delivery)

    @property
    def redeliveries(self) -> int:
        """How often a crash or a lost connection brought it back; not failures."""
        return self._delivery.redeliveries

    @property
    def timestamp(self) -> datetime | None:
        """When it was published, if that is known."""
        at = self._delivery.sent.timestamp
        try:
            return None if at is None else datetime.fromtimestamp(at, UTC)
        except (OverflowError, ValueError, OSError):  # a foreign sender may have put in anything
            return None

    @property
    def correlation_id(self) -> str | None:
        """What it belongs to, as the publisher said."""
        return self._delivery.sent.correlation_id

    @property
    def reply_to(self) -> str | None:
        """Where an answer is expected."""
        return self._delivery.sent.reply_to

    @property
    def settled(self) -> str | None:
        """How it was settled by hand, in this handler: the name of the method, or None."""
        return self._settled

    @property
    def lapsed(self) -> bool:
        """Whether its handler is being cancelled because its ack timeout has passed. Middleware can
        tell that from a worker that stops; with its handler it is over.

        >>> from queuecraft.testing import message_of
        >>> message_of({"id": "o-1"}).lapsed
        False
        """
        return self._control.lapsed(self._delivery)

    def ack(self) -> Awaitable[None]:
        """Done: the broker may forget it, even if the handler fails later."""
        settling = self._control.ack(self._delivery)
        self._settled = "ack"
        return settling

    def nack(self, *, requeue: bool = True, reason: str = "nack") -> Awaitable[None]:
        """Failed: to the retry policy; with `requeue=False` to the dead letters at once."""
        settling = self._control.nack(self._delivery, requeue, reason)
        self._settled = "nack"
        return settling

    def requeue(self) -> Awaitable[None]:
        """Back to the queue at once; counts as a failed attempt, so it cannot loop for ever."""
        settling = self._control.requeue(self._delivery)
        self._settled = "requeue"
        return settling

    def retry(self, *, delay: float | None = None) -> Awaitable[None]:
        """Failed: again after `delay` seconds, not the policy's wait, if attempts are left."""
        settling = self._control.retry(self._delivery, delay)
        self._settled = "retry"
        return settling

    def dead_letter(self, reason: str) -> Awaitable[None]:
        """To the dead letters at once, with a reason of your own."""
        settling = self._control.dead_letter(self._delivery, reason)
        self._settled = "dead_letter"
        return settling

    def extend(self, seconds: float) -> None:
        """Move the ack timeout to `seconds` from now."""
        self._control.extend(self._delivery, seconds)

    def __repr__(self) -> str:
        sent = self._delivery.sent
        return f"<Message {sent.id} {sent.routing_key!r} from {self._delivery.queue!r}>"
