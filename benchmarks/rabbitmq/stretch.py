"""How orders are sent, and how long handling them took: the same for every contender."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import TypeVar

from benchmarks.harness import Measurement
from benchmarks.order import Tally

T = TypeVar("T")

IN_FLIGHT = 100
PREFETCH = 100
QUEUE = "billing"
EVENT = "order.placed"

Publish = Callable[[T], Awaitable[object]]
Pace = Callable[[Publish[T], Sequence[T]], Awaitable[None]]


async def one_at_a_time(publish: Publish[T], payloads: Sequence[T]) -> None:
    for payload in payloads:
        await publish(payload)


async def in_flight(publish: Publish[T], payloads: Sequence[T]) -> None:
    """A hundred tasks that publish one order after the other, as request handlers do."""
    left = iter(payloads)

    async def publish_on() -> None:
        for payload in left:
            await publish(payload)

    await asyncio.gather(*(publish_on() for _ in range(IN_FLIGHT)))


async def timed(publishing: Awaitable[None], messages: int) -> Measurement:
    """From the first publish to the last confirmation."""
    started = perf_counter()
    await publishing
    return Measurement(messages, perf_counter() - started)


class Stretch(Tally):
    """Counts handled orders, from the moment the first one reached its handler to the last.

    Connecting and asking for messages is left out: some workers take a second over it.
    """

    __slots__ = ("begun", "ended")

    def __init__(self, expected: int) -> None:
        super().__init__(expected)
        self.begun = self.ended = 0.0

    def add(self, order: object) -> None:
        if not self.handled:
            self.begun = perf_counter()
        super().add(order)
        if self.handled == self.expected:
            self.ended = perf_counter()

    def measurement(self, kind: type) -> Measurement:
        """Call when nothing can arrive any more."""
        self.verify(kind)
        return Measurement(self.handled, self.ended - self.begun)
