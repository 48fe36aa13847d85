"""Answers that are good for a while, the longer the more they hold."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

FEW: Final = 100  # things that are asked for anew each time
A_SECOND: Final = 100  # of more, so many are asked for a second, on average
LONGEST: Final = 10.0  # seconds for which an answer is good, however much it holds

T = TypeVar("T")


class Remembered(Generic[T]):
    """The last answer to one question. What the management interface tells is five seconds old
    anyway, and a list of a thousand queues takes it a tenth of a second."""

    def __init__(self) -> None:
        self._kept: tuple[float, T] | None = None

    async def get(self, ask: Callable[[], Awaitable[tuple[T, int]]]) -> T:
        """What was said last, or what is said now: an answer, and how many things are in it."""
        now = asyncio.get_running_loop().time()
        if self._kept is not None and now < self._kept[0]:
            return self._kept[1]
        value, count = await ask()
        self._kept = now + good_for(count), value
        return value


def good_for(count: int) -> float:
    """Seconds for which an answer with so many things is good.

    >>> good_for(100), good_for(500), good_for(50_000)
    (0.0, 5.0, 10.0)
    """
    return min(LONGEST, count / A_SECOND) if count > FEW else 0.0
