"""Work done beside the runners: acks, moves and releases on their way to the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Errands:
    """Tasks that somebody waits for in the end.

    >>> async def main():
    ...     errands = Errands()
    ...     errands.start(asyncio.sleep(0))
    ...     await errands.done()
    ...     return len(asyncio.all_tasks())
    >>> asyncio.run(main())
    1
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def busy(self) -> bool:
        """Whether any are not done."""
        return bool(self._tasks)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin, and go on without waiting."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def done(self) -> None:
        """Wait until all are, those begun meanwhile too."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def cancel(self) -> None:
        """Give up on what is not done."""
        for task in self._tasks:
            task.cancel()
