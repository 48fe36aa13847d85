"""A message as it is kept in the file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from queuecraft.drivers.base import Outgoing

# Headers may be a read-only view of a dict, which is no type the encoder knows.
_encoder: Final = msgspec.msgpack.Encoder(enc_hook=dict)
_decoder: Final = msgspec.msgpack.Decoder(Outgoing)
_canonical: Final = msgspec.msgpack.Encoder(enc_hook=dict, order="deterministic")

encode: Final = _encoder.encode


def decode(data: bytes | str | float | None, position: int) -> Outgoing:
    """The message of a record. One that cannot be read is given as it is: it will be found to
    be no payload, and kept as a dead letter."""
    if not isinstance(data, bytes):  # what the column allows, and only a damaged file has
        return Outgoing(b"", f"unreadable-{position}")
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):  # text that is none is a ValueError
        return Outgoing(data, f"unreadable-{position}")


def pack(values: Mapping[str, Any]) -> bytes:
    """Arguments or header matches: equal ones give equal bytes.

    >>> unpack(pack({"b": 1, "a": None}))
    {'a': None, 'b': 1}
    """
    return _canonical.encode(values)


def unpack(data: bytes) -> dict[str, Any]:
    """What `pack` was given."""
    values: dict[str, Any] = msgspec.msgpack.decode(data)
    return values
