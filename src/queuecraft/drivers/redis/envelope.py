"""A message as it is kept in Redis; and what others have put there, which is a message as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from queuecraft.drivers.base import Outgoing

OURS: Final = b"\0qc\1"
AGAIN: Final = b"\0qc\2"  # then how often, the size of an id and the id, and the message

# Headers may be a read-only view of a dict, which is no type the encoder knows.
_encoder: Final = msgspec.msgpack.Encoder(enc_hook=dict)
_decoder: Final = msgspec.msgpack.Decoder(Outgoing)
_canonical: Final = msgspec.msgpack.Encoder(enc_hook=dict, order="deterministic")


def encode(message: Outgoing) -> bytes:
    """A message for Redis.

    >>> decode(encode(Outgoing(b"{}", "m-1")), "unused")[0].id
    'm-1'
    """
    return OURS + _encoder.encode(message)


def decode(value: bytes, id: str) -> tuple[Outgoing, int]:
    """The message, and how often it was delivered before. What is none of ours is a payload, with
    the id it was given when it first came.

    >>> message, again = decode(b'{"total": 9.5}', "foreign-1")
    >>> message.body, message.id, again
    (b'{"total": 9.5}', 'foreign-1', 0)
    """
    again = 0
    if value[:4] == AGAIN:
        try:
            again, size = int(value[4:12], 16), int(value[12:14], 16)
            id = value[14 : 14 + size].decode() or id
            value = value[14 + size :]
        except ValueError:
            return Outgoing(value, id), 0
    if value[:4] == OURS:
        try:
            return _decoder.decode(value[4:]), again
        except (msgspec.MsgspecError, ValueError, RecursionError):  # not text: a ValueError
            pass  # it will be found to be no payload, and kept as a dead letter
    return Outgoing(value, id), again


def pack(values: Any) -> bytes:
    """Properties, arguments or header matches: equal ones give equal bytes.

    >>> unpack(pack({"b": 1, "a": None}))
    {'a': None, 'b': 1}
    """
    return _canonical.encode(values)


def unpack(data: bytes) -> Any:
    """What `pack` was given."""
    return msgspec.msgpack.decode(data)


def strung(parts: Sequence[bytes]) -> bytes:
    """Some bytes as one, such as scripts can take apart: they read MessagePack, but only texts.

    >>> unstrung(strung([b"billing", b"", b"order.*"]))
    [b'billing', b'', b'order.*']
    """
    sized = (b"\xdb" + len(part).to_bytes(4, "big") + part for part in parts)
    return b"\xdd" + len(parts).to_bytes(4, "big") + b"".join(sized)


def unstrung(data: bytes) -> list[bytes]:
    """What `strung` was given."""
    parts: list[bytes] = []
    at = 5
    while at < len(data):
        size = int.from_bytes(data[at + 1 : at + 5], "big")
        parts.append(data[at + 5 : at + 5 + size])
        at += 5 + size
    return parts


def told_apart(headers: Mapping[str, Any]) -> list[bytes]:
    """Headers as names and values in turn, values as bytes that are equal when the values are.

    >>> told_apart({"pages": 2}) == told_apart({"pages": 2.0}), told_apart({"pages": "2"})
    (True, [b'pages', b's2'])
    """
    flat: list[bytes] = []
    for name, value in headers.items():
        if isinstance(value, str):
            told = b"s" + value.encode()
        elif isinstance(value, bytes):
            told = b"b" + value
        elif isinstance(value, float) and not value.is_integer():
            told = b"f" + repr(value).encode()
        elif isinstance(value, int | float):
            told = b"i" + str(int(value)).encode()
        else:
            told = b"o" + pack(value)
        flat += (name.encode(), told)
    return flat
