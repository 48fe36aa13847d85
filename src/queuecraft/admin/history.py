"""The last minutes of the four numbers."""

from __future__ import annotations

from collections import deque

from queuecraft.admin.overview import Numbers

LONGEST = 150  # points


class History:
    """What was measured at each look, the last of them."""

    def __init__(self) -> None:
        self._numbers: deque[tuple[float, float | None, float | None, float | None, float | None]]
        self._numbers = deque(maxlen=LONGEST)

    def add(
        self,
        at: float,
        *,
        arriving: float | None = None,
        handled: float | None = None,
        failure_ratio: float | None = None,
        oldest_age: float | None = None,
    ) -> None:
        """The four numbers at one moment."""
        self._numbers.append((at, arriving, handled, failure_ratio, oldest_age))

    @property
    def numbers(self) -> Numbers:
        """The four numbers, each with its past."""
        arriving, handled, failed, oldest = (
            tuple((point[0], point[place]) for point in self._numbers) for place in range(1, 5)
        )
        return Numbers(
            in_per_second=arriving,
            handled_per_second=handled,
            failure_ratio=failed,
            oldest_age=oldest,
        )
