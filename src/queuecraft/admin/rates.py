"""How fast things go: the difference between two looks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

from queuecraft.drivers.base import QueueInfo
from queuecraft.model.presence import BOUNDS, Presence, added, quantile

Who: TypeAlias = tuple[str, str]
"""The worker or workers of a process on one queue: the process' id, and the queue."""

SLOWEST = BOUNDS[-1]


@dataclass(frozen=True, slots=True)
class Pace:
    """Messages a second: those that left the queue for good, and deliveries that went well or
    failed."""

    settled: float = 0.0
    succeeded: float = 0.0
    failed: float = 0.0

    def __add__(self, other: Pace) -> Pace:
        return Pace(
            self.settled + other.settled,
            self.succeeded + other.succeeded,
            self.failed + other.failed,
        )

    @property
    def failure_ratio(self) -> float | None:
        """The share of deliveries that failed; None if there were none.

        >>> Pace(succeeded=3.0, failed=1.0).failure_ratio
        0.25
        """
        total = self.succeeded + self.failed
        return self.failed / total if total else None


def paces(
    before: Iterable[Presence], now: Iterable[Presence], elapsed: float = inf
) -> dict[Who, Pace]:
    """What each process did between two of its signs of life. One that is seen for the first
    time, or has begun anew, tells nothing yet; nor does one that has said nothing new, or whose
    clock was set while `elapsed` seconds went by here."""
    earlier = {each.id: each for each in before}
    found: dict[Who, Pace] = {}
    for each in now:
        old = earlier.get(each.id)
        if old is None or each.at <= old.at:
            continue
        seconds = each.at - old.at
        if seconds > elapsed + 3 * each.every + 1:
            continue
        counts = _counts(old)
        for who, count in _counts(each).items():
            more = [now - then for now, then in zip(count, counts.get(who, count), strict=True)]
            if who in counts and min(more) >= 0:
                found[who] = Pace(*(each / seconds for each in more))
    return found


def by_queue(paces: Mapping[Who, Pace]) -> dict[str, Pace]:
    """All processes of each queue together."""
    sums: dict[str, Pace] = {}
    for (_, queue), pace in paces.items():
        sums[queue] = sums.get(queue, Pace()) + pace
    return sums


def durations(presences: Iterable[Presence]) -> dict[Who, tuple[int, ...]]:
    """How long handlers took, counted by steps, since each process began."""
    counted: dict[Who, list[Sequence[int]]] = {}
    for each in presences:
        for worker in each.workers:
            counted.setdefault((each.id, worker.queue), []).append(worker.durations)
    return {who: added(counts) for who, counts in counted.items()}


def since(
    before: Mapping[Who, Sequence[int]], now: Mapping[Who, Sequence[int]]
) -> dict[Who, tuple[int, ...]]:
    """What was counted in between, of those who were there before.

    >>> since({("a", "q"): (1, 2)}, {("a", "q"): (1, 5, 1), ("b", "q"): (9,)})
    {('a', 'q'): (0, 3, 1)}
    """
    found: dict[Who, tuple[int, ...]] = {}
    for who, counts in now.items():
        if who in before:
            old = [*before[who], *[0] * len(counts)]
            more = tuple(new - then for new, then in zip(counts, old, strict=False))
            if min(more, default=0) >= 0:
                found[who] = more
    return found


def p95(counts: Iterable[Sequence[int]]) -> float | None:
    """What 95 of 100 handlers do not take longer than, in seconds; None if none was seen.

    >>> p95([(0, 95), (0, 0, 0, 5)]), p95([])
    (0.001, None)
    """
    found = quantile(added(counts), 0.95)
    return None if found is None else min(found, SLOWEST)


def arrivals(
    before: QueueInfo | None, now: QueueInfo, seconds: float, settled: float | None
) -> float | None:
    """Messages a second that came in: those that left, and by how much there are more now.

    >>> arrivals(QueueInfo(name="q", ready=10), QueueInfo(name="q", ready=30), 10.0, 5.0)
    7.0
    """
    growth = _growth(before, now, seconds)
    return None if growth is None or settled is None else max(0.0, growth + settled)


def drain(
    before: QueueInfo | None,
    now: QueueInfo,
    seconds: float,
    arriving: float | None,
    settled: float | None,
) -> float | None:
    """Seconds until a queue is empty at this pace; infinite while it grows or stands still. What
    is done within a second is no backlog: a queue in steady use always holds something.

    >>> now = QueueInfo(name="q", ready=30)
    >>> drain(None, now, 0.0, 5.0, 20.0), drain(None, now, 0.0, 20.0, 20.0)
    (2.0, inf)
    >>> drain(None, now, 0.0, 50.0, 50.0)
    0.6
    """
    if not now.ready:
        return None if now.ready is None else 0.0
    if arriving is None or settled is None:
        growth = _growth(before, now, seconds)
        if growth is None:
            return inf if now.consumers == 0 else None
        net = -growth
    else:
        if settled >= now.ready:
            return now.ready / settled
        net = settled - arriving
    return now.ready / net if net > 0 else inf


def _growth(before: QueueInfo | None, now: QueueInfo, seconds: float) -> float | None:
    """By how many a second there are more of all that can be told."""
    if before is None or seconds <= 0:
        return None
    pairs = (
        (before.ready, now.ready),
        (before.in_flight, now.in_flight),
        (before.delayed, now.delayed),
    )
    told = [(then, new) for then, new in pairs if then is not None and new is not None]
    return sum(new - then for then, new in told) / seconds if told else None


def _counts(presence: Presence) -> dict[Who, tuple[int, int, int]]:
    sums: dict[Who, tuple[int, int, int]] = {}
    for worker in presence.workers:  # several may share a queue
        who = (presence.id, worker.queue)
        settled, succeeded, failed = sums.get(who, (0, 0, 0))
        sums[who] = (
            settled + worker.settled,
            succeeded + worker.succeeded,
            failed + worker.failed,
        )
    return sums
