"""Delayed messages in memory: gone with the process, like the queues they are for."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import msgspec

from queuecraft.stores.base import (
    NEVER,
    Added,
    Census,
    Cursor,
    DelayedStore,
    Notes,
    Waiting,
    Which,
    pause,
)


class MemoryDelayedStore(DelayedStore):
    """Two orders of the same messages: by when they are due, and by when they may be taken.

    >>> import asyncio
    >>> from queuecraft.model.envelope import Outgoing
    >>> store = MemoryDelayedStore()
    >>> waiting = Waiting(Outgoing(b"{}", "m-1", queue="billing"), due=60.0, added=0.0)
    >>> asyncio.run(store.add(waiting, limit=1)).size
    1
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Waiting] = {}
        self._next: dict[str, float] = {}
        self._by_due: list[Cursor] = []
        self._by_next: list[Cursor] = []
        self._max_size = 0
        self._notes: dict[str, str] = {}

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def add(self, waiting: Waiting, limit: int) -> Added:
        id, size = waiting.message.id, len(self._waiting)
        if id in self._waiting:
            return Added(True, size)
        if size >= limit:
            return Added(False, size)
        self._waiting[id] = waiting
        self._next[id] = waiting.due
        insort(self._by_due, waiting.cursor)
        insort(self._by_next, waiting.cursor)
        self._max_size = max(self._max_size, size + 1)
        return Added(True, size + 1)

    async def take(self, which: Which, hold: str, until: float) -> Sequence[Waiting]:
        taken: list[Waiting] = []
        for id in list(islice(self._chosen(which), which.limit)):
            held = msgspec.structs.replace(self._waiting[id], hold=hold)
            self._waiting[id] = held
            self._put(id, until)
            taken.append(held)
        return sorted(taken, key=lambda each: each.cursor)

    async def renew(self, taken: Sequence[Waiting], until: float) -> Sequence[Waiting]:
        ours = [each for each in taken if self._holds(each)]
        for each in ours:
            self._put(each.message.id, until)
        return ours

    async def forget(self, taken: Sequence[Waiting]) -> int:
        ours = [each for each in taken if self._holds(each)]
        for each in ours:
            self._remove(each.message.id)
        return len(ours)

    async def put_back(self, taken: Sequence[Waiting], *, now: float, failed: bool) -> None:
        for each in taken:
            if self._holds(each):
                failures = each.failures + failed
                id = each.message.id
                self._waiting[id] = msgspec.structs.replace(each, hold="", failures=failures)
                self._put(id, now + pause(failures) if failed else now)

    async def cancel(self, id: str, now: float) -> bool:
        found = self._waiting.get(id)
        if found is None or self._is_held(id, now):
            return False
        self._remove(id)
        return True

    async def page(self, limit: int, after: Cursor) -> Sequence[Waiting]:
        start = bisect_right(self._by_due, after)
        return [self._waiting[id] for _, id in self._by_due[start : start + limit]]

    async def census(self, overdue_by: float) -> Census:
        return Census(
            size=len(self._waiting),
            max_size=self._max_size,
            overdue=bisect_right(self._by_due, (overdue_by, chr(0x10FFFF))),
            oldest_due=self._by_due[0][0] if self._by_due else None,
            next_at=self._by_next[0][0] if self._by_next else NEVER,
        )

    async def note(self, notes: Notes) -> None:
        self._notes.update(notes.put)
        for name, count in notes.add.items():
            self._notes[name] = str(int(self._notes.get(name, 0)) + count)
        for name in notes.remove:
            self._notes.pop(name, None)

    async def notes(self) -> Mapping[str, str]:
        return dict(self._notes)

    async def exchange(self, name: str, value: str) -> str | None:
        before = self._notes.get(name)
        self._notes[name] = value
        return before

    # -- inside --------------------------------------------------------------------------------

    def _chosen(self, which: Which) -> Iterator[str]:
        if which.due_by is None:
            for next_at, id in self._by_next:
                if next_at > which.now:
                    return
                yield id
            return
        for due, id in self._by_due[bisect_right(self._by_due, which.after) :]:
            if due > which.due_by:
                return
            if not self._is_held(id, which.now):
                yield id

    def _is_held(self, id: str, now: float) -> bool:
        return bool(self._waiting[id].hold) and self._next[id] > now

    def _holds(self, taken: Waiting) -> bool:
        found = self._waiting.get(taken.message.id)
        return found is not None and found.hold == taken.hold

    def _put(self, id: str, next_at: float) -> None:
        del self._by_next[bisect_left(self._by_next, (self._next[id], id))]
        self._next[id] = next_at
        insort(self._by_next, (next_at, id))

    def _remove(self, id: str) -> None:
        del self._by_due[bisect_left(self._by_due, self._waiting.pop(id).cursor)]
        del self._by_next[bisect_left(self._by_next, (self._next.pop(id), id))]
