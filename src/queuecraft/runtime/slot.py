"""What one runner is doing right now."""

from __future__ import annotations

import asyncio

from queuecraft.model.envelope import Delivery
from queuecraft.runtime.handler import Call
from queuecraft.runtime.settle import Settler


class Slot:
    """A runner's delivery, and whether somebody else has settled it meanwhile."""

    __slots__ = ("by_hand", "call", "deadline", "delivery", "lapsed", "settler", "task", "waits")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.delivery: Delivery | None = None
        self.settler: Settler | None = None
        self.call: Call | None = None
        self.deadline: float | None = None
        self.by_hand = False  # the handler has settled its message itself
        self.lapsed = False  # the ack timeout has settled it
        self.waits = False  # settled early, it waits in its lane for another try

    def forget(self) -> None:
        """The run is over; the next one starts with a clean slate."""
        self.by_hand = self.lapsed = self.waits = False
        self.deadline = None
