"""How a replay does: the share of its messages that fail, and when that is too much."""

from __future__ import annotations

from collections import deque

WINDOW = 5


class Watch:
    """Counts over the last few chunks, so that a thousand good ones hide no bad one.

    >>> watch = Watch(limit=0.1)
    >>> watch.note(sent=100, failed=5)
    >>> watch.rate, watch.alarmed
    (0.05, False)
    >>> watch.note(sent=100, failed=60)
    >>> watch.rate, watch.alarmed
    (0.325, True)
    """

    def __init__(self, limit: float, *, window: int = WINDOW) -> None:
        self._limit = limit
        self._chunks: deque[tuple[int, int]] = deque(maxlen=window)

    def note(self, *, sent: int, failed: int) -> None:
        """What became of one more chunk, or of those before it since it was sent."""
        self._chunks.append((sent, failed))

    @property
    def failed(self) -> int:
        """Messages that were refused or are dead letters now."""
        return sum(failed for _, failed in self._chunks)

    @property
    def sent(self) -> int:
        """Messages that were tried."""
        return sum(sent for sent, _ in self._chunks)

    @property
    def rate(self) -> float:
        """The share that failed; those that failed without any being sent are all of them."""
        return self.failed / self.sent if self.sent else float(bool(self.failed))

    @property
    def alarmed(self) -> bool:
        """Whether more fail than may."""
        return self.rate > self._limit
