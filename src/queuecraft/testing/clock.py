"""Time that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from datetime import datetime

from queuecraft.clock import Clock, Timer

# A timer that rounding puts this little past the end of an `advance` counts as reached: seconds
# since the epoch have a resolution of a quarter of a microsecond.
HAIR = 1e-6


class FakeTimer:
    """A wake-up in fake time.

    >>> clock = FakeClock()
    >>> timer = clock.call_later(5, print)
    >>> timer.cancel()
    >>> clock.pending
    ()
    """

    __slots__ = ("callback", "when")

    def __init__(self, when: float, callback: Callable[[], object]) -> None:
        self.when = when
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """Forget it."""
        self.callback = None

    def fire(self) -> bool:
        """Call back, unless it was cancelled."""
        callback, self.callback = self.callback, None
        if callback is None:
            return False
        callback()
        return True


class FakeClock(Clock):
    """A clock for tests: hours pass in no time, and nothing is ever early or late.

    `advance` fires each timer at its own time and lets the loop settle before the next, so that
    what a timer starts is done when the following one fires. Handlers in threads are outside its
    reach: await what they do.

    >>> async def main():
    ...     clock = FakeClock(start=1000.0)
    ...     clock.call_later(60, lambda: print("a minute, at", clock.now()))
    ...     clock.call_later(3600, lambda: print("an hour, at", clock.now()))
    ...     await clock.advance(7200)
    ...     return clock.now()
    >>> asyncio.run(main())
    a minute, at 1060.0
    an hour, at 4600.0
    8200.0
    """

    def __init__(self, start: float = 1_750_000_000.0, *, turns: int = 50) -> None:
        self._start = start
        self._elapsed = 0.0
        self._turns = turns
        self._timers: list[tuple[float, int, FakeTimer]] = []
        self._made = 0
        # Plain callables, as in `Clock`: those who keep `clock.now` still follow this clock.
        self.now = lambda: self._start + self._elapsed
        self.monotonic = lambda: self._elapsed
        self.chance = lambda: 0.5  # waits are never spread

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call back once, when `advance` comes to that time; at the next turn if it is now."""
        if seconds <= 0:
            return asyncio.get_running_loop().call_soon(callback)
        timer = FakeTimer(self._elapsed + seconds, callback)
        self._made += 1
        heapq.heappush(self._timers, (timer.when, self._made, timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        """Wait until `advance` has moved the time on by `seconds`."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        over = asyncio.Event()
        timer = self.call_later(seconds, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()

    @property
    def pending(self) -> tuple[float, ...]:
        """In how many seconds each waiting timer is due, the soonest first."""
        due = sorted(timer.when for _, _, timer in self._timers if timer.callback is not None)
        return tuple(when - self._elapsed for when in due)

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass: every timer due by then fires, in order, each at its own time."""
        if not seconds >= 0:
            raise ValueError(f"advance({seconds!r}): time does not go backwards")
        end = self._elapsed + seconds
        await self.settle()
        while self._timers and self._timers[0][0] <= end + HAIR:
            when, _, timer = heapq.heappop(self._timers)
            if timer.callback is None:
                continue
            self._elapsed = max(self._elapsed, when)
            timer.fire()
            await self.settle()
        if self._elapsed < end:
            self._elapsed = end
            await self.settle()

    async def set(self, when: float | datetime) -> None:
        """Let time pass until `when`, in seconds since the epoch or an aware datetime.

        >>> async def main():
        ...     clock = FakeClock(start=1000.0)
        ...     await clock.set(1500.0)
        ...     return clock.now()
        >>> asyncio.run(main())
        1500.0
        """
        if isinstance(when, datetime):
            if when.tzinfo is None:
                raise ValueError(f"set({when!r}): a datetime without a time zone; give it one")
            when = when.timestamp()
        await self.advance(when - self.now())

    async def settle(self) -> None:
        """Let everything happen that needs no time to pass."""
        for _ in range(self._turns):
            await asyncio.sleep(0)
