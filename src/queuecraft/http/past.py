"""How each queue has fared in the last minutes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

from queuecraft.admin.overview import Overview

POINTS = 150
Moment: TypeAlias = tuple[float, float | None, float | None]
"""When, how many were ready, and how many were handled in a second."""


class Past:
    """The last 150 looks at every queue; a queue that is gone is forgotten."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[Moment]] = {}
        self._last = float("-inf")

    def note(self, overview: Overview) -> None:
        """One look more."""
        at = overview.at.timestamp()
        if at == self._last:
            return  # the same look again; an earlier one is a clock that was set back
        self._last = at
        kept: dict[str, deque[Moment]] = {}
        for row in overview.queues:
            points = self._queues.get(row.name) or deque(maxlen=POINTS)
            points.append((at, row.ready, row.handled_per_second))
            kept[row.name] = points
        self._queues = kept

    def of(self, queue: str) -> Sequence[Moment]:
        """What was seen of a queue, oldest first."""
        return tuple(self._queues.get(queue, ()))
