"""What one runner is doing right now."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

from queuecraft.model.envelope import Delivery
from queuecraft.runtime.handler import Call
from queuecraft.runtime.settle import Settler

at_work: ContextVar[asyncio.Task[Any] | None] = ContextVar("the runner at work", default=None)
"""The task that handles messages here; asking asyncio for it costs ten times as much."""


class Slot:
    """A runner's delivery, and whether somebody else has settled it meanwhile.

    A batch is a slot with a `rest`: a slot for each delivery after the first, all led by it.
    """

    __slots__ = (
        "abandoned",
        "again",
        "by_hand",
        "call",
        "deadline",
        "delivery",
        "filling",
        "follows",
        "lapsed",
        "leader",
        "rest",
        "settler",
        "task",
        "timed",
    )

    def __init__(self, leader: Slot | None = None) -> None:
        self.task: asyncio.Task[None] | None = None
        self.delivery: Delivery | None = None
        self.settler: Settler | None = None
        self.call: Call | None = None
        self.timed: Delivery | None = None  # whose deadline it is: the last one's may still stand
        self.deadline = 0.0
        self.by_hand = False  # the handler has settled its message itself
        self.lapsed = False  # the ack timeout has settled it
        self.again: float | None = None  # failed already: when to try again, in its own lane
        self.abandoned = False  # its handler ignores all cancellation, another slot has its place
        self.rest: dict[Delivery, Slot] = {}
        self.leader = leader or self
        self.filling = False  # a batch waits for more before it begins
        self.follows = False  # another of its key is before it in the same batch

    @property
    def open(self) -> bool:
        """Whether a delivery is being handled and nobody has decided on it yet."""
        return self.delivery is not None and not self.by_hand and not self.lapsed

    @property
    def all(self) -> list[Slot]:
        """Itself and, of a batch, the rest: one for each delivery."""
        return [self, *self.rest.values()]

    def join(self, delivery: Delivery, *, follows: bool) -> None:
        """Let another delivery be handled together with its own."""
        other = self.rest[delivery] = Slot(self)
        other.delivery, other.settler, other.call = delivery, self.settler, self.call
        other.follows = follows

    def forget(self) -> None:
        """The run is over; the next one starts with a clean slate."""
        self.by_hand = self.lapsed = self.filling = False
        self.delivery = self.timed = self.again = None
        if self.rest:
            self.rest = {}
