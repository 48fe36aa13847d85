"""How fast the number of delayed messages grows, and whether that is unusual."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import TypeAlias

History: TypeAlias = Sequence[tuple[int, int]]
"""Minutes since the epoch, in order, and the size at the end of each."""

LEAST = 5  # rates that must be known before one can be unusual
SPREAD = 1.4826  # makes the median deviation comparable to a standard deviation


def rates(history: History, over: float = 1.0) -> list[float]:
    """Messages a minute from each minute known to the next. Of the last minute only a part may be
    over; what is missing of it is filled up with as much of the one before.

    >>> rates([(10, 100), (11, 150), (13, 130)])
    [50.0, -10.0]
    >>> rates([(10, 100), (11, 150), (12, 160)], over=0.2)
    [50.0, 50.0]
    """
    found = [
        (size - before) / (minute - earlier)
        for (earlier, before), (minute, size) in pairwise(history)
    ]
    if len(found) > 1 and history[-1][0] - history[-2][0] == 1:
        found[-1] += (1 - over) * found[-2]
    return found


def is_abnormal(rates: Sequence[float], *, floor: float, deviations: float) -> bool:
    """Whether the last rate is far above the usual. Median and median deviation are what they
    are without the odd burst, so one burst does not hide the next; the floor keeps a queue that
    hardly ever grows from crying wolf.

    >>> is_abnormal([5, 3, 4, 6, 5, 500], floor=100, deviations=6)
    True
    >>> is_abnormal([5, 3, 4, 6, 5, 60], floor=100, deviations=6)
    False
    """
    if len(rates) <= LEAST:
        return False
    *earlier, last = rates
    usual = median(earlier)
    spread = SPREAD * median(abs(each - usual) for each in earlier)
    return last - usual > max(floor, deviations * spread)
