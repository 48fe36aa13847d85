"""The runners of a consumer: begun, replaced where that is needed, and dismissed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

from queuecraft.runtime.slot import Slot

LAST_WORDS = 1.0  # seconds that handlers get to end once they were cancelled

Run: TypeAlias = Callable[[Slot], Coroutine[Any, Any, None]]
"""What a runner does, until it is told to end."""


class Crew:
    """A fixed number of runners, each a task with a slot of its own.

    One whose handler ignores all cancellation is left to it, and another takes its place. One
    that ends though nobody has asked for it is reported: `on_end` gets its error, or None if it
    was cancelled.
    """

    def __init__(
        self, name: str, size: int, run: Run, on_end: Callable[[BaseException | None], None]
    ) -> None:
        self.slots = [Slot() for _ in range(size)]
        self._name = name
        self._run = run
        self._on_end = on_end
        self._dismissed = False
        self._forced = asyncio.Event()
        self._left_behind: set[asyncio.Task[None]] = set()

    def begin(self, slot: Slot) -> None:
        """Set a runner to work."""
        loop = asyncio.get_running_loop()
        number = self.slots.index(slot) + 1
        slot.task = loop.create_task(self._run(slot), name=f"{self._name}-{number}")
        slot.task.add_done_callback(partial(self._ended, slot))

    def includes(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether the task is a runner, and its code a handler's."""
        return any(slot.task is task for slot in self.slots)

    @property
    def fallen(self) -> list[Slot]:
        """The slots whose runners have ended."""
        return [slot for slot in self.slots if slot.task is not None and slot.task.done()]

    def replace(self, slot: Slot) -> Slot:
        """Leave a runner to its handler; the slot of the one that works in its place."""
        slot.abandoned = True
        if slot.task is not None:
            self._left_behind.add(slot.task)
            slot.task.add_done_callback(self._left_behind.discard)
        fresh = Slot()
        self.slots[self.slots.index(slot)] = fresh
        self.begin(fresh)
        return fresh

    def hurry(self) -> None:
        """Cut a dismissal short: wait for handlers no longer."""
        self._forced.set()

    @property
    def hurried(self) -> bool:
        """Whether nobody is to be waited for any more."""
        return self._forced.is_set()

    async def dismiss(self, *, wait: float) -> None:
        """Wait so many seconds for handlers to return, then cancel those that have not."""
        self._dismissed = True
        tasks = {slot.task for slot in self.slots if slot.task is not None}
        if wait > 0 and tasks:
            done = asyncio.ensure_future(asyncio.wait(tasks))
            forced = asyncio.ensure_future(self._forced.wait())
            await asyncio.wait((done, forced), timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            done.cancel()
            forced.cancel()
        late = {task for task in tasks if not task.done()} | self._left_behind
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=LAST_WORDS)

    def _ended(self, slot: Slot, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if not self._dismissed and not slot.abandoned:
            self._on_end(error)
