"""What time it is, waking up later, and chance; tests replace it to travel in time."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A wake-up that has been asked for."""

    def cancel(self) -> None:
        """Forget it."""
        ...


class Clock:
    """The time of the machine.

    >>> Clock().now() > 1_700_000_000
    True
    """

    now: Callable[[], float] = staticmethod(time.time)
    """Seconds since the epoch."""

    monotonic: Callable[[], float] = staticmethod(time.perf_counter)
    """Seconds that never go backwards, for durations."""

    chance: Callable[[], float] = staticmethod(random.random)
    """A number from 0 to 1, for waits that are to be spread."""

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call back once, `seconds` from now, in the running loop."""
        return asyncio.get_running_loop().call_later(max(0.0, seconds), callback)

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""
        await asyncio.sleep(max(0.0, seconds))
