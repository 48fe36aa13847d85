"""Who in this process waits for messages of which queue."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable


class Waiters:
    """Futures by the number of a queue, the first to wait woken first.

    A queue that was found empty stays so until something wakes its waiters: whoever comes
    meanwhile can wait as well, and need not look into the file.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, deque[asyncio.Future[None]]] = {}
        self._empty: set[int] = set()

    def join(self, queue: int) -> asyncio.Future[None]:
        """A future that is done when there may be messages."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(queue, deque()).append(future)
        return future

    def leave(self, queue: int, future: asyncio.Future[None]) -> None:
        """Wait no more."""
        waiting = self._waiting.get(queue)
        if waiting and future in waiting:
            waiting.remove(future)

    def wake(self, queue: int, count: int = 1) -> None:
        """So many messages may be there: let as many look."""
        self._empty.discard(queue)
        waiting = self._waiting.get(queue)
        while waiting and count > 0:
            future = waiting.popleft()
            if not future.done():
                future.set_result(None)
                count -= 1

    def wake_all(self, queues: Iterable[int] | None = None) -> None:
        """Anything may have happened in these queues, or in all."""
        if queues is None:
            self._empty.clear()
            queues = tuple(self._waiting)
        for queue in queues:
            self.wake(queue, len(self._waiting.get(queue, ())))

    def found_empty(self, queue: int) -> None:
        """Somebody has looked, and taken all there was."""
        self._empty.add(queue)

    def is_empty(self, queue: int) -> bool:
        """Whether there is nothing to be found."""
        return queue in self._empty
