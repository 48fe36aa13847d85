"""How durations are spread: the counts of a histogram."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds, from a quick handler to one that calls a slow service."""


@dataclass(slots=True)
class Spread:
    """How many durations fell below each bound.

    >>> spread = Spread((0.1, 1.0))
    >>> spread.add([0.05, 0.5, 3.0])
    >>> spread.cumulative()
    ([('0.1', 1), ('1.0', 2), ('+Inf', 3)], 3.55)
    """

    bounds: tuple[float, ...]
    total: float = 0.0
    counts: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, durations: Sequence[float]) -> None:
        """Count these; most often all of them are alike."""
        bounds, counts = self.bounds, self.counts
        at = bisect_left(bounds, max(durations))
        if at == 0 or min(durations) > bounds[at - 1]:
            counts[at] += len(durations)
        else:
            ordered, before = sorted(durations), 0
            for step, bound in enumerate(bounds):
                reached = bisect_right(ordered, bound)
                counts[step] += reached - before
                before = reached
            counts[-1] += len(ordered) - before
        self.total += sum(durations)

    def add_one(self, duration: float) -> None:
        """Count one."""
        self.counts[bisect_left(self.bounds, duration)] += 1
        self.total += duration

    def with_(self, other: Spread) -> Spread:
        """Both together."""
        counts = [one + two for one, two in zip(self.counts, other.counts, strict=True)]
        return Spread(self.bounds, self.total + other.total, counts)

    def cumulative(self) -> tuple[list[tuple[str, float]], float]:
        """How many are at most as long as each bound, and the sum of all."""
        reached, buckets = 0, list[tuple[str, float]]()
        for bound, count in zip((*map(str, self.bounds), "+Inf"), list(self.counts), strict=True):
            reached += count
            buckets.append((bound, reached))
        return buckets, self.total
