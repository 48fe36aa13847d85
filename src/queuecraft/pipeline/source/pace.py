"""No more messages a second than are asked for."""

from __future__ import annotations

from queuecraft.clock import Clock

BATCH = 500  # messages in one send, at most
STEPS = 10  # sends a second, at least, so that a slow pace is a steady one


class Pace:
    """Says how many messages to send at once, and waits before the next ones.

    >>> Pace(None).size, Pace(200).size, Pace(0.5).size
    (500, 20, 1)
    """

    def __init__(
        self, rate: float | None, clock: Clock | None = None, *, most: int = BATCH
    ) -> None:
        most = min(BATCH, most)
        self.size = most if rate is None else max(1, min(most, int(rate / STEPS)))
        self._rate = rate
        self._clock = clock or Clock()
        self._next = 0.0

    async def wait(self, count: int) -> None:
        """Return when so many more may be sent."""
        if self._rate is None:
            return
        now = self._clock.monotonic()
        if self._next > now:
            await self._clock.sleep(self._next - now)
            now = self._next
        self._next = now + count / self._rate
