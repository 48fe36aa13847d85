"""What has to wait in the memory of who moves it on, ordered by when it has to go."""

from __future__ import annotations

import heapq
from itertools import count

from queuecraft.drivers.base import Delivery
from queuecraft.drivers.kafka.names import TIERS


class Waiting:
    """So many of each tier at most, and so many bytes of bodies, or messages that wait for hours
    would leave no room for those that wait for a moment."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._heap: list[tuple[float, int, Delivery]] = []
        self._number = count()
        self._counts = [0] * len(TIERS)
        self._bytes = [0] * len(TIERS)
        self._full: set[int] = set()

    @property
    def next(self) -> float | None:
        """When the first of them has to go."""
        return self._heap[0][0] if self._heap else None

    @property
    def full(self) -> frozenset[int]:
        """The tiers of which nothing more is wanted, until a tenth of what waits has gone."""
        most, most_bytes = self._most, self._most_bytes
        for tier, (number, size) in enumerate(zip(self._counts, self._bytes, strict=True)):
            if number >= most or size >= most_bytes:
                self._full.add(tier)
            elif number <= most * 9 // 10 and size <= most_bytes * 9 // 10:
                self._full.discard(tier)
        return frozenset(self._full)

    def put(self, delivery: Delivery, until: float) -> None:
        """This one has to wait."""
        self._count(delivery)
        heapq.heappush(self._heap, (until, next(self._number), delivery))

    def take(self, now: float, limit: int) -> list[Delivery]:
        """Those that have waited long enough."""
        due: list[Delivery] = []
        while self._heap and self._heap[0][0] <= now and len(due) < limit:
            delivery = heapq.heappop(self._heap)[2]
            self._count(delivery, -1)
            due.append(delivery)
        return due

    def forget(self) -> None:
        """Drop those that others get."""
        stays = [each for each in self._heap if not each[2].token[0].leaving]
        if len(stays) < len(self._heap):
            self.clear()
            for until, number, delivery in stays:
                self._count(delivery)
                self._heap.append((until, number, delivery))
            heapq.heapify(self._heap)

    def clear(self) -> None:
        """Nothing waits here any more."""
        self._heap.clear()
        self._counts = [0] * len(TIERS)
        self._bytes = [0] * len(TIERS)

    def _count(self, delivery: Delivery, times: int = 1) -> None:
        tier = tier_of(delivery.token[0].topic)
        self._counts[tier] += times
        self._bytes[tier] += times * len(delivery.sent.body)


def tier_of(topic: str) -> int:
    """Of the topics of delayed messages, which it is.

    >>> tier_of("billing.retry.3")
    3
    """
    return int(topic.rpartition(".")[2])
