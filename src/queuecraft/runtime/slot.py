"""What one runner is doing right now."""

from __future__ import annotations

import asyncio

from queuecraft.model.envelope import Delivery
from queuecraft.runtime.handler import Call
from queuecraft.runtime.settle import Settler


class Slot:
    """A runner's delivery, and whether somebody else has settled it meanwhile."""

    __slots__ = (
        "abandoned",
        "again",
        "by_hand",
        "call",
        "deadline",
        "delivery",
        "lapsed",
        "settler",
        "task",
        "timed",
    )

    def __init__(self) -> None:
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

    @property
    def open(self) -> bool:
        """Whether a delivery is being handled and nobody has decided on it yet."""
        return self.delivery is not None and not self.by_hand and not self.lapsed

    def forget(self) -> None:
        """The run is over; the next one starts with a clean slate."""
        self.by_hand = self.lapsed = False
        self.delivery = self.timed = self.again = None
