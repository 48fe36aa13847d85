"""A worker and a publisher of one contender on one broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from benchmarks.sent import IN_FLIGHT, Handle, Publish


async def nothing(url: str) -> None:
    """Where a publisher needs nobody to go before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """What the two do while their blocks run; None where the contender has no such thing."""

    publisher: Callable[[str], AbstractAsyncContextManager[Publish]] | None = None
    """Alone: what it sends stays in the queue."""
    worker: Callable[[str, Handle], AbstractAsyncContextManager[None]] | None = None
    """In a process of its own."""
    together: Callable[[str, Handle], AbstractAsyncContextManager[Publish]] | None = None
    """Both in one process, where no other can reach the queue."""
    prepare: Callable[[str], Awaitable[None]] = nothing
    """Makes the queue, before there is a worker."""
    flight: int = IN_FLIGHT
    """How many orders are sent at once; 1 for a client that blocks."""
