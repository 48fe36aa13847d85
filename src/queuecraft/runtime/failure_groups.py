"""Dead letters that failed alike, summed up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from queuecraft.runtime.dead_message import DeadMessage

TURN = 200  # dead letters summed up before others get their turn: a few milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Dead letters of one queue that failed alike.

    >>> lost = DeadMessage(id="m-1", queue="billing", event="order.placed", error_type="KeyError")
    >>> (group,) = asyncio.run(grouped([lost], "billing.dlq"))
    >>> group.count, group.example
    (1, 'm-1')
    """

    queue: str
    """The dead-letter queue they are in."""
    fingerprint: str
    count: int
    """How many of those that were looked at."""
    error_type: str
    error: str
    reason: str
    event: str
    first: datetime | None
    last: datetime | None
    example: str
    """The id of the last one."""


class Grouping:
    """Sums dead letters up, one after the other.

    >>> grouping = Grouping("billing.dlq")
    >>> for id in ("KeyError", "TimeoutError", "TimeoutError"):
    ...     grouping.add(DeadMessage(id=id, queue="billing", event="order.placed", error_type=id))
    >>> [(each.example, each.count) for each in grouping.groups()]
    [('TimeoutError', 2), ('KeyError', 1)]
    """

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._found: dict[str, _Alike] = {}

    def add(self, letter: DeadMessage) -> None:
        """One more."""
        fingerprint = letter.fingerprint
        alike = self._found.get(fingerprint)
        if alike is None:
            alike = self._found[fingerprint] = _Alike(letter)
        alike.count += 1
        alike.example = letter
        if (when := letter.failed_at) is not None:
            alike.first = when if alike.first is None else min(alike.first, when)
            alike.last = when if alike.last is None else max(alike.last, when)

    def groups(self) -> list[FailureGroup]:
        """The largest first; the last to be added is the example."""
        return sorted(
            (
                FailureGroup(
                    queue=self._queue,
                    fingerprint=fingerprint,
                    count=alike.count,
                    error_type=alike.example.error_type,
                    error=alike.example.error,
                    reason=alike.example.reason,
                    event=alike.example.event,
                    first=alike.first,
                    last=alike.last,
                    example=alike.example.id,
                )
                for fingerprint, alike in self._found.items()
            ),
            key=lambda group: -group.count,
        )


async def grouped(letters: Iterable[DeadMessage], queue: str) -> list[FailureGroup]:
    """The groups of like failures among the dead letters of a queue, the largest first."""
    grouping = Grouping(queue)
    for number, letter in enumerate(letters, 1):
        grouping.add(letter)
        if number % TURN == 0:
            await asyncio.sleep(0)
    return grouping.groups()


@dataclass(slots=True)
class _Alike:
    example: DeadMessage
    count: int = 0
    first: datetime | None = None
    last: datetime | None = None
