"""A message as it waits in a table: encoded, with all that was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from queuecraft.model.envelope import Outgoing
from queuecraft.model.errors import PayloadError
from queuecraft.model.queue import Exchange


class Stored(msgspec.Struct, frozen=True, eq=False, array_like=True):
    """What is in a row. New fields go to the end: rows of an older release may still wait."""

    message: Outgoing
    exchange: Exchange | None = None  # None: it goes straight to a queue
    drop: bool | None = None  # whether it may be that no queue is bound; None: as the relay is set


@dataclass(frozen=True, slots=True)
class Row:
    """A message that waits, and its place among the others."""

    position: int
    key: str | None
    stored: Stored | None  # None: it cannot be read

    @property
    def lane(self) -> str | int:
        """What it must not overtake in: its key, or, without one, nothing but itself."""
        return self.position if self.key is None else self.key


@dataclass(frozen=True, slots=True)
class Refused:
    """A message that was kept aside, as the broker will not have it.

    >>> from datetime import UTC
    >>> Refused("m-1", "order.placed", None, datetime.now(UTC), "no queue is bound").target
    'order.placed'
    """

    id: str
    target: str
    """The event, or the queue."""
    key: str | None
    failed_at: datetime
    error: str


# Headers may be a read-only view of a dict, which is no type the encoder knows.
_encoder: Final = msgspec.msgpack.Encoder(enc_hook=dict)
_decoder: Final = msgspec.msgpack.Decoder(Stored)


def encode(stored: Stored) -> bytes:
    """The bytes of a row."""
    try:
        return _encoder.encode(stored)
    except (TypeError, msgspec.MsgspecError) as error:  # arguments of an exchange may be anything
        raise PayloadError(f"the message cannot be stored: {error}", operation="outbox") from error


def decode(data: object) -> Stored | None:
    """What `encode` was given; None if nobody can tell.

    >>> decode(encode(Stored(Outgoing(b"{}", "m-1")))).message.id
    'm-1'
    >>> decode(b"something else") is None, decode("SQLite keeps anything") is None
    (True, True)
    """
    if not isinstance(data, (bytes, memoryview)):
        return None
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
