"""A delayed message as it is kept: bytes that a newer version can still read."""

from __future__ import annotations

from typing import Final

import msgspec

from queuecraft.model.envelope import Outgoing
from queuecraft.model.queue import Exchange
from queuecraft.stores.base import Waiting


class _Record(msgspec.Struct, array_like=True, gc=False, eq=False):
    message: Outgoing
    added: float
    exchange: Exchange | None = None


# Headers may be a read-only view of a dict, which is no type the encoder knows.
_encoder: Final = msgspec.msgpack.Encoder(enc_hook=dict)
_decoder: Final = msgspec.msgpack.Decoder(_Record)


def encode(waiting: Waiting) -> bytes:
    """What is kept of a message; when it is due is kept beside it.

    >>> data = encode(Waiting(Outgoing(b"{}", "m-1"), due=60.0, added=1.0))
    >>> decode(data, "m-1", 60.0).added
    1.0
    """
    return _encoder.encode(_Record(waiting.message, waiting.added, waiting.exchange))


def decode(data: object, id: str, due: float, failures: int = 0, hold: str = "") -> Waiting:
    """The message of a record. One that cannot be read has no target: it is refused when it is
    due, and so can be seen, cancelled and cleaned up like any other."""
    try:
        if not isinstance(data, bytes):
            raise ValueError("no record")
        record = _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        body = data if isinstance(data, bytes) else b""
        return Waiting(Outgoing(body, id, content_type=UNREADABLE), due, due, None, failures, hold)
    return Waiting(record.message, due, record.added, record.exchange, failures, hold)


UNREADABLE: Final = "application/x-unreadable"
