"""What every contender sends and handles: a 225-byte order, and the count of those handled."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class Order(msgspec.Struct):
    """An order as most contenders carry it; 225 bytes as compact JSON."""

    id: str
    customer: str
    email: str
    currency: str
    total: float
    quantity: int
    paid: bool
    placed_at: str
    skus: list[str]
    note: str


@dataclass
class OrderRecord:
    """The same order as a plain dataclass."""

    id: str
    customer: str
    email: str
    currency: str
    total: float
    quantity: int
    paid: bool
    placed_at: str
    skus: list[str]
    note: str


DISTINCT = 500


def order_fields(number: int) -> dict[str, Any]:
    return {
        "id": f"o-{number:08d}",
        "customer": "c-1843",
        "email": "ada.lovelace@example.com",
        "currency": "EUR",
        "total": 129.95,
        "quantity": 3,
        "paid": True,
        "placed_at": "2025-11-03T09:41:27Z",
        "skus": ["BK-1042", "PN-0007", "CUP-311"],
        "note": "ring twice",
    }


def orders(kind: type[T], count: int) -> list[T]:
    """`count` orders of a kind, made before the clock starts.

    Only the first few hundred are distinct objects, so that a long run is not slowed by the
    garbage collector walking over payloads that merely wait to be sent.
    """
    distinct = [kind(**order_fields(number)) for number in range(min(count, DISTINCT))]
    return list(islice(cycle(distinct), count))


class WrongCount(Exception):
    """A run whose figure would mean nothing: messages were lost, doubled or not typed."""


class Tally:
    """Counts handled orders; `done` is set when all that were expected have come."""

    __slots__ = ("done", "expected", "handled", "last")

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.handled = 0
        self.last: object = None
        self.done = asyncio.Event()

    def add(self, order: object) -> None:
        self.last = order
        self.handled += 1
        if self.handled == self.expected:
            self.done.set()

    def verify(self, kind: type) -> None:
        """Call when nothing can arrive any more."""
        if self.handled != self.expected:
            raise WrongCount(f"handled {self.handled} messages of {self.expected}")
        if self.expected and not isinstance(self.last, kind):
            raise WrongCount(f"handlers got {type(self.last).__name__}, not {kind.__name__}")
