"""AMQP frames: what every message costs, packed by hand; everything else is left to pamqp."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from struct import Struct
from typing import Any, Final, TypeAlias

import msgspec
from pamqp import frame
from pamqp.base import Frame

from queuecraft.drivers.rabbitmq.fields import LENIENT, Malformed, pack_table, read_table, short

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
END: Final = b"\xce"
BEAT: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"
OVERHEAD: Final = 8  # bytes of a frame around its payload
ROUTES: Final = 1024  # pairs of exchange and routing key that a channel remembers

DELIVER: Final = 60 << 16 | 60
GET_OK: Final = 60 << 16 | 71
GET_EMPTY: Final = 60 << 16 | 72
ACK: Final = 60 << 16 | 80
NACK: Final = 60 << 16 | 120
RETURN: Final = 60 << 16 | 50

START: Final = Struct(">BHI")  # type, channel, size
_CONTENT: Final = Struct(">BHIHHQH")  # ... of a header frame, class, weight, size of body, flags
_CONTENT_START: Final = Struct(">HHQH")
_SETTLE: Final = Struct(">BHIHHQBB")  # an ack or a nack, whole
TAG: Final = Struct(">QB")
_LONG: Final = Struct(">Q")


class Properties(msgspec.Struct, frozen=True, gc=False, eq=False):
    """What AMQP itself says about a message."""

    content_type: str | None = None
    content_encoding: str | None = None
    headers: Mapping[str, Any] | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: int | None = None
    message_type: str | None = None


Packed: TypeAlias = tuple[int, bytes]
"""Properties as they travel: flags that say which, and their bytes."""

# -- packing ---------------------------------------------------------------------------------------


def method(channel: int, command: Frame) -> bytes:
    """Any method, by way of pamqp."""
    return frame.marshal(command, channel)


def publish(channel: int, exchange: str, routing_key: str) -> bytes:
    """The first frame of a message; the same for all that go the same way.

    >>> from pamqp import commands
    >>> publish(1, "events", "order.placed") == method(
    ...     1, commands.Basic.Publish(exchange="events", routing_key="order.placed", mandatory=True)
    ... )
    True
    """
    payload = b"\x00\x3c\x00\x28\x00\x00" + short(exchange) + short(routing_key) + b"\x01"
    return START.pack(METHOD, channel, len(payload)) + payload + END


def pack(properties: Properties) -> Packed:
    """What a message says about itself, in flags and bytes."""
    flags, said = _kind(properties.content_type, properties.content_encoding)
    if properties.headers:
        flags |= 1 << 13
        said += pack_table(properties.headers)
    if properties.delivery_mode is not None:
        flags |= 1 << 12
        said += bytes((properties.delivery_mode,))
    if properties.priority is not None:
        flags |= 1 << 11
        said += bytes((properties.priority,))
    if properties.correlation_id is not None:
        flags |= 1 << 10
        said += short(properties.correlation_id)
    if properties.reply_to is not None:
        flags |= 1 << 9
        said += short(properties.reply_to)
    if properties.expiration is not None:
        flags |= 1 << 8
        said += short(properties.expiration)
    if properties.message_id is not None:
        flags |= 1 << 7
        said += short(properties.message_id)
    if properties.timestamp is not None:
        flags |= 1 << 6
        said += _LONG.pack(properties.timestamp)
    if properties.message_type is not None:
        flags |= 1 << 5
        said += short(properties.message_type)
    return flags, said


def pack_plain(
    content_type: str | None,
    *,
    persistent: bool,
    message_id: str,
    timestamp: int,
    message_type: str,
) -> Packed:
    """The same as `pack`, for what most messages say and no more.

    >>> said = Properties(
    ...     "text/plain", delivery_mode=2, message_id="m-1", timestamp=7, message_type="a"
    ... )
    >>> pack_plain(
    ...     "text/plain", persistent=True, message_id="m-1", timestamp=7, message_type="a"
    ... ) == pack(said)
    True
    """
    flags, before = _plain(content_type, persistent)
    try:
        return flags, b"%b%b%b%b" % (
            before,
            short(message_id),
            _LONG.pack(timestamp),
            short(message_type),
        )
    except struct.error:
        raise ValueError(f"{timestamp} does not fit into 64 bits") from None


def content(channel: int, packed: Packed, body: bytes, most: int) -> list[bytes]:
    """The other frames of a message; a body longer than `most` is cut into several. Headers cannot
    be: too large, they would cost the connection."""
    flags, said = packed
    size = len(said) + 14
    if size > most:
        raise ValueError(f"its headers take {size:,} bytes; the broker allows {most:,}")
    whole = len(body)
    header = _CONTENT.pack(HEADER, channel, size, 60, 0, whole, flags)
    if 0 < whole <= most:
        return [header, said, END, START.pack(BODY, channel, whole), body, END]
    parts = [header, said, END]
    for start in range(0, whole, most):
        piece = body[start : start + most]
        parts += (START.pack(BODY, channel, len(piece)), piece, END)
    return parts


@lru_cache(maxsize=256)
def _plain(content_type: str | None, persistent: bool) -> tuple[int, bytes]:
    """Flags of a plain message, and what comes before its id."""
    flags, said = _kind(content_type, None)
    return flags | 1 << 12 | 1 << 7 | 1 << 6 | 1 << 5, said + (b"\2" if persistent else b"\1")


@lru_cache(maxsize=256)
def _kind(content_type: str | None, content_encoding: str | None) -> tuple[int, bytes]:
    """Flags and first properties; a few kinds of messages share the same few."""
    flags, said = 0, b""
    if content_type is not None:
        flags, said = 1 << 15, short(content_type)
    if content_encoding is not None:
        flags, said = flags | 1 << 14, said + short(content_encoding)
    return flags, said


def ack(channel: int, tag: int, *, multiple: bool) -> bytes:
    """Forget a delivery, or all up to it.

    >>> from pamqp import commands
    >>> ack(1, 7, multiple=True) == method(1, commands.Basic.Ack(7, True))
    True
    """
    return _SETTLE.pack(METHOD, channel, 13, 60, 80, tag, multiple, 0xCE)


def give_back(channel: int, tag: int) -> bytes:
    """Put a delivery back into its queue.

    >>> from pamqp import commands
    >>> give_back(1, 7) == method(1, commands.Basic.Nack(7, False, True))
    True
    """
    return _SETTLE.pack(METHOD, channel, 13, 60, 120, tag, 2, 0xCE)


# -- reading ---------------------------------------------------------------------------------------


def read_properties(payload: bytes) -> tuple[int, Properties]:
    """The size of the body and what is said about it, from the payload of a header frame."""
    try:
        _, _, size, flags = _CONTENT_START.unpack_from(payload)
        at = 14
        more = flags
        while more & 1:  # nobody has needed more than fifteen properties yet
            (more,) = Struct(">H").unpack_from(payload, at)
            at += 2
        values: list[Any] = [None] * len(_READERS)
        for index, read in _readers(flags):
            values[index], at = read(payload, at)
    except (struct.error, IndexError) as error:
        raise Malformed(f"a header frame that does not end: {error}") from error
    if at > len(payload):
        raise Malformed("a header frame that does not end")
    return size, Properties(*values)


def read_short(payload: bytes, at: int) -> tuple[str, int]:
    """The short string that starts here, and where what follows it starts."""
    start = at + 1
    at = start + payload[at]
    return payload[start:at].decode("utf-8", LENIENT), at


def read_route(told: bytes) -> tuple[str, str]:
    """Exchange and routing key, with which a method ends."""
    try:
        exchange, at = read_short(told, 0)
        routing_key, at = read_short(told, at)
    except IndexError as error:
        raise Malformed(f"a route that does not end: {error}") from error
    if at > len(told):
        raise Malformed("a route that does not end")
    return exchange, routing_key


def read_returned(payload: bytes) -> tuple[str, str]:
    """Exchange and routing key of what is returned."""
    return read_route(payload[7 + int.from_bytes(payload[6:7], "big") :])  # past the reason


def read_tag(payload: bytes) -> tuple[int, int]:
    """Delivery tag and flags of an ack or a nack."""
    try:
        tag, flags = TAG.unpack_from(payload, 4)
    except struct.error as error:
        raise Malformed(f"an ack that does not end: {error}") from error
    return tag, flags


def read_method(data: bytes) -> Frame:
    """Any method, by way of pamqp, from a whole frame."""
    try:
        _, _, read = frame.unmarshal(data)
    except Exception as error:  # it has many ways to say no
        raise Malformed(f"no method that can be read: {error}") from error
    if not isinstance(read, Frame):
        raise Malformed(f"{type(read).__name__} where a method was expected")
    return read


def _read_octet(payload: bytes, at: int) -> tuple[int, int]:
    return payload[at], at + 1


def _read_long(payload: bytes, at: int) -> tuple[int, int]:
    (value,) = _LONG.unpack_from(payload, at)
    return value, at + 8


_Reader: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
_READERS: Final[tuple[_Reader, ...]] = (
    read_short,
    read_short,
    read_table,
    _read_octet,
    _read_octet,
    read_short,
    read_short,
    read_short,
    read_short,
    _read_long,
    read_short,
)


@lru_cache(maxsize=256)
def _readers(flags: int) -> tuple[tuple[int, _Reader], ...]:
    """Those for the properties that are there, with their places: a few kinds of messages share
    the same few."""
    return tuple((at, read) for at, read in enumerate(_READERS) if flags & 1 << (15 - at))
