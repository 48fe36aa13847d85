"""A delayed message as a client asks for it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from queuecraft.http.refusal import Refusal
from queuecraft.model.queue import Queue

LONGEST_DELAY = 100 * 365 * 86400  # seconds; more is a mistake in the unit

EventName: TypeAlias = Annotated[
    str,
    Meta(
        pattern=r"^[\w:/@+-]+(\.[\w:/@+-]+)*$",
        max_length=255,
        description="For every queue bound to this event when it is due.",
        examples=["order.placed"],
    ),
]
QueueName: TypeAlias = Annotated[
    str,
    Meta(
        pattern=r"^[\w.:/@+-]+$",
        max_length=255,
        description="For this queue alone.",
        examples=["billing"],
    ),
]
Label: TypeAlias = Annotated[str, Meta(pattern=r"^[\w.:/@+=-]+$", max_length=200)]
HeaderName: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_.-]*$", max_length=100)]
HeaderText: TypeAlias = Annotated[str, Meta(max_length=1000)]
HeaderCount: TypeAlias = Annotated[int, Meta(ge=-(2**53), le=2**53)]
HeaderNumber: TypeAlias = Annotated[float, Meta(ge=-(2.0**53), le=2.0**53)]
HeaderValue: TypeAlias = bool | HeaderText | HeaderCount | HeaderNumber
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=LONGEST_DELAY, examples=[90])]
Moment: TypeAlias = Annotated[datetime, Meta(tz=True, description="A time with its zone.")]


class DelayedRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What to deliver, to whom, and when.

    >>> DelayedRequest.read(b'{"event": "order.placed", "payload": {"id": 1}, "delay": 60}').target
    'order.placed'
    >>> DelayedRequest.read(b'{"event": "order.placed", "payload": 1}')
    Traceback (most recent call last):
    queuecraft.http.refusal.Refusal: give either delay or deliver_at
    """

    payload: Annotated[Any, Meta(description="Any JSON.")]
    event: EventName | UnsetType = UNSET
    queue: QueueName | UnsetType = UNSET
    delay: Seconds | UnsetType = UNSET
    deliver_at: Moment | UnsetType = UNSET
    headers: Annotated[dict[HeaderName, HeaderValue], Meta(max_length=32)] | UnsetType = UNSET
    message_id: Label | UnsetType = UNSET
    key: Label | UnsetType = UNSET
    correlation_id: Label | UnsetType = UNSET

    @classmethod
    def read(cls, body: bytes) -> DelayedRequest:
        """The request of a body, which must be JSON."""
        try:
            found = _decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            said = str(error) or type(error).__name__
            raise _refusal(f"the body: {said}") from None
        if (found.event is UNSET) == (found.queue is UNSET):
            raise _refusal("give either event or queue")
        if (found.delay is UNSET) == (found.deliver_at is UNSET):
            raise _refusal("give either delay or deliver_at")
        return found

    @property
    def target(self) -> str | Queue[Any]:
        """The event or the queue it is for."""
        return Queue(self.queue) if isinstance(self.queue, str) else str(self.event)

    @property
    def options(self) -> dict[str, Any]:
        """The rest, as keywords."""
        names = ("delay", "deliver_at", "headers", "message_id", "key", "correlation_id")
        given = {name: getattr(self, name) for name in names}
        return {name: value for name, value in given.items() if value is not UNSET}


def schema() -> dict[str, Any]:
    """What a request looks like, for the OpenAPI document."""
    _, components = msgspec.json.schema_components([DelayedRequest], ref_template="#/{name}")
    described: dict[str, Any] = components["DelayedRequest"]
    described["description"] = "What to deliver, to whom, and when."
    described["allOf"] = [
        {"oneOf": [{"required": [one]}, {"required": [other]}]}
        for one, other in (("event", "queue"), ("delay", "deliver_at"))
    ]
    return described


_decoder = msgspec.json.Decoder(DelayedRequest)


def _refusal(message: str) -> Refusal:
    hint = 'as in {"event": "order.placed", "payload": {"id": "o-1"}, "delay": 60}'
    return Refusal(422, "InvalidRequest", message, hint)
