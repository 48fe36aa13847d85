"""An order that knows when it was sent: what travels when time and memory are measured."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

QUEUE = "billing"
EVENT = "order.sent"
IN_FLIGHT = 100
PREFETCH = 100
WARM = 0.0


class Sent(msgspec.Struct):
    """Padded to the 225 bytes of an order; `at` is a moment of the monotonic clock, which all
    processes of a machine share."""

    at: float
    note: str = "x" * 190


Handle = Callable[[float], None]
"""What a handler does: it is told when its order was sent."""

Publish = Callable[[float], Awaitable[object]]
"""Sends an order with this moment in it."""

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Sent).decode


def moment(order: object) -> float:
    """Of an order that arrived as builtins, checked as a typed one is.

    >>> moment({"at": 1.5, "note": ""})
    1.5
    """
    return msgspec.convert(order, Sent).at


def as_builtins(at: float) -> dict[str, object]:
    """An order for those who carry nothing else."""
    return {"at": at, "note": "x" * 190}
