"""How many orders are on their way at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

from benchmarks.rabbitmq.stretch import Pace, Publish, in_flight, one_at_a_time

T = TypeVar("T")

__all__ = ["Pace", "in_flight", "one_at_a_time", "thousand_in_flight"]

THOUSAND = 1000


async def thousand_in_flight(publish: Publish[T], payloads: Sequence[T]) -> None:
    """A thousand tasks that publish one order after the other."""
    left = iter(payloads)

    async def publish_on() -> None:
        for payload in left:
            await publish(payload)

    await asyncio.gather(*(publish_on() for _ in range(THOUSAND)))
