"""A message as a record of Kafka; and what others have put there, which is a message as well."""

from __future__ import annotations

from collections.abc import Mapping
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from confluent_kafka import TIMESTAMP_CREATE_TIME

from queuecraft.codec.headers import (
    CONTENT_ENCODING,
    CONTENT_TYPE,
    CORRELATION_ID,
    DUE_AT,
    EVENT,
    EXPIRES_AT,
    ID,
    PUBLISHED_AT,
    REPLY_TO,
)
from queuecraft.drivers.base import NO_HEADERS, Outgoing

if TYPE_CHECKING:
    from confluent_kafka import Message

TO: Final = "x-to"
"""Where a delayed record goes when it is due: `q` and a queue, or `e` and an exchange."""
PRIORITY: Final = "x-priority"
TYPES: Final = "x-types"
"""Of headers that are no text, what they are: Kafka knows only bytes."""
DEEPEST: Final = 100
"""Levels of a header that is read. What can just be read is too deep to be written again, further
down the stack, and its message could be neither retried nor kept as a dead letter."""

_LATEST: Final = 253402300799_000  # ms: the end of the year 9999
_given: Final = methodcaller("headers")  # which looks at what it gets, as a plain call does not
_types: Final = msgspec.json.Decoder(dict[str, str])
Header: TypeAlias = tuple[str, str | bytes | None]


Way: TypeAlias = tuple[str, str | None]
"""The topic that a message is sent to, and where it goes from there when it is due."""
Record: TypeAlias = tuple[str, bytes | None, bytes | None, list[Header]]
"""Topic, value, key and headers."""


def record_of(message: Outgoing, way: Way) -> Record:
    """A message as it is stored."""
    topic, to = way
    headers = packed(message)
    if to is not None:
        headers.append((TO, to.encode()))
    return topic, message.body, None if message.key is None else message.key.encode(), headers


def packed(message: Outgoing) -> list[Header]:
    """The headers of a record; its key and its value are the message's own.

    >>> packed(Outgoing(b"{}", "m-1", "events", "order.placed", content_type="application/json"))
    [('x-id', b'm-1'), ('x-event', b'order.placed'), ('content-type', b'application/json')]
    """
    headers: list[Header] = [(ID, message.id.encode()), (EVENT, message.routing_key.encode())]
    if message.timestamp is not None:
        headers.append((PUBLISHED_AT, b"%d" % round(message.timestamp * 1000)))
    if message.content_type is not None:
        headers.append((CONTENT_TYPE, message.content_type.encode()))
    if message.content_encoding is not None:
        headers.append((CONTENT_ENCODING, message.content_encoding.encode()))
    if message.due_at is not None:
        headers.append((DUE_AT, b"%d" % round(message.due_at * 1000)))
    if message.expires_at is not None:
        headers.append((EXPIRES_AT, b"%d" % round(message.expires_at * 1000)))
    if message.correlation_id is not None:
        headers.append((CORRELATION_ID, message.correlation_id.encode()))
    if message.reply_to is not None:
        headers.append((REPLY_TO, message.reply_to.encode()))
    if message.priority:
        headers.append((PRIORITY, b"%d" % message.priority))
    if message.headers:
        _add(headers, message.headers)
    return headers


def _add(headers: list[Header], given: Mapping[str, Any]) -> None:
    types: dict[str, str] = {}
    for name, value in given.items():
        if isinstance(value, str):
            headers.append((name, value.encode()))
        elif value is None:
            headers.append((name, None))
        elif isinstance(value, bytes):
            headers.append((name, value))
            types[name] = "bytes"
        else:
            headers.append((name, msgspec.json.encode(value)))
            types[name] = "json"
    if types:
        headers.append((TYPES, msgspec.json.encode(types)))


class Opener:
    """Reads the records of one topic as `message_of` does, at half the price: neighbours are much
    alike, and most have just the headers that `packed` gives to a plain message."""

    __slots__ = ("_event", "_exchange", "_kind", "_published", "_routing_key")

    def __init__(self, exchange: str = "", routing_key: str = "") -> None:
        self._exchange = exchange
        self._routing_key = routing_key
        # What the last one had, and what that means.
        self._event: tuple[bytes, str] = b"", ""
        self._published: tuple[bytes | None, float | None] = None, None
        self._kind: tuple[bytes, str] = b"", ""

    def open(self, record: Message) -> Outgoing:
        """The message of a record."""
        given = headers_of(record)
        if given and len(given) == 4:
            (first, id), (second, event), (third, at), (fourth, kind) = given
            if (
                first == ID
                and second == EVENT
                and third == PUBLISHED_AT
                and fourth == CONTENT_TYPE
                and id
                and event
                and kind
            ):
                if event != self._event[0]:
                    self._event = event, _text(event)
                if at != self._published[0]:
                    self._published = at, _seconds(at)
                if kind != self._kind[0]:
                    self._kind = kind, _text(kind)
                key = record.key()
                return Outgoing(
                    record.value() or b"",
                    id.decode("utf-8", "backslashreplace"),
                    self._exchange,
                    self._event[1],
                    self._published[1],
                    self._kind[1],
                    None,
                    None if key is None else _text(key),
                )
        return _message(record, given, self._exchange, self._routing_key)


def headers_of(record: Message) -> Any:
    """Its headers; none, if one of them has a name that is no text. To be asked for once: the
    client gives a broken list then, which the call itself has to notice."""
    try:
        return _given(record)
    except (SystemError, UnicodeDecodeError):
        return None


def message_of(record: Message, exchange: str = "", routing_key: str = "") -> Outgoing:
    """The message of a record; what its headers leave out is as the topic says."""
    return _message(record, headers_of(record), exchange, routing_key)


def _message(record: Message, given: Any, exchange: str, routing_key: str) -> Outgoing:
    key = record.key()
    name = None if key is None else _text(key)
    body = record.value() or b""
    if not given:
        return Outgoing(
            body,
            f"{record.topic()}-{record.partition()}-{record.offset()}",
            exchange,
            routing_key,
            _stamp(record),
            key=name,
        )
    headers: dict[str, Any] = dict(given)
    id = headers.pop(ID, None)
    event = headers.pop(EVENT, None)
    published = _seconds(headers.pop(PUBLISHED_AT, None))
    kind = headers.pop(CONTENT_TYPE, None)
    message = Outgoing(
        body,
        _text(id) if id else f"{record.topic()}-{record.partition()}-{record.offset()}",
        exchange,
        _text(event) if event else routing_key,
        _stamp(record) if published is None and not id else published,
        None if kind is None else _text(kind),
        None,
        name,
    )
    return _with_more(message, headers) if headers else message  # as most have none


def _with_more(message: Outgoing, headers: dict[str, Any]) -> Outgoing:
    """The same with what only some messages have."""
    encoding = headers.pop(CONTENT_ENCODING, None)
    correlation = headers.pop(CORRELATION_ID, None)
    reply = headers.pop(REPLY_TO, None)
    priority = headers.pop(PRIORITY, None)
    due, expires = _seconds(headers.pop(DUE_AT, None)), _seconds(headers.pop(EXPIRES_AT, None))
    types = headers.pop(TYPES, None)
    return msgspec.structs.replace(
        message,
        content_encoding=None if encoding is None else _text(encoding),
        headers=_typed(headers, types) if headers else NO_HEADERS,
        due_at=due,
        expires_at=expires,
        priority=int(priority) if priority and priority.isdigit() and len(priority) < 4 else 0,
        correlation_id=None if correlation is None else _text(correlation),
        reply_to=None if reply is None else _text(reply),
    )


def _typed(headers: dict[str, bytes | None], types: bytes | None) -> dict[str, Any]:
    known: Mapping[str, str] = {}
    if types:
        try:
            known = _types.decode(types)
        except (msgspec.MsgspecError, ValueError):
            pass  # somebody else's
    typed: dict[str, Any] = {}
    for name, value in headers.items():
        kind = known.get(name)
        if value is None or kind == "bytes":
            typed[name] = value
        elif kind == "json":
            typed[name] = _decoded(value)
        else:
            try:
                typed[name] = value.decode()
            except UnicodeDecodeError:
                typed[name] = value
    return typed


def _decoded(value: bytes) -> Any:
    """What JSON says; the bytes themselves, if it is none, or none that could be sent on."""
    try:
        found = msgspec.json.decode(value)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return value
    inner = value.count(b"[") + value.count(b"{")
    return value if inner > DEEPEST and _is_deep(found) else found


def _is_deep(value: Any) -> bool:
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for each in level
            if isinstance(each, list | dict)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return any(isinstance(each, list | dict) for each in level)


def _text(value: bytes) -> str:
    """Bytes that should be text, whatever they are."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("utf-8", "backslashreplace")


def _seconds(value: bytes | None) -> float | None:
    if value and value.isdigit() and len(value) < 16 and (number := int(value)) <= _LATEST:
        return number / 1000
    return None


def stored(record: Message) -> float | None:
    """When its producer has sent it; None if only the broker has dated it, whose clock may be
    another than that of all who read it."""
    kind, stamp = record.timestamp()
    return stamp / 1000 if kind == TIMESTAMP_CREATE_TIME and 0 <= stamp <= _LATEST else None


def _stamp(record: Message) -> float | None:
    kind, stamp = record.timestamp()
    return stamp / 1000 if kind and 0 <= stamp <= _LATEST else None
