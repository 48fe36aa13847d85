"""Runs that outlived their connection: what they did is not done a second time."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

REMEMBERED = 10_000


class Orphans:
    """Messages handled here, or still running here, that the broker will deliver again.

    >>> orphans = Orphans()
    >>> orphans.finished("m-1")
    >>> bool(orphans), asyncio.run(orphans.adopt("m-1")), asyncio.run(orphans.adopt("m-1"))
    (True, True, False)
    """

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Future[bool]] = {}
        self._finished: OrderedDict[str, None] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._running or self._finished)

    def started(self, message_id: str) -> None:
        """The connection broke while this message is being handled."""
        if message_id not in self._running:
            self._running[message_id] = asyncio.get_running_loop().create_future()

    def finished(self, message_id: str, *, success: bool = True) -> None:
        """The run has ended; only a success counts."""
        future = self._running.pop(message_id, None)
        if future is not None and not future.done():
            future.set_result(success)
        if success:
            self._finished[message_id] = None
            if len(self._finished) > REMEMBERED:
                self._finished.popitem(last=False)

    async def adopt(self, message_id: str) -> bool:
        """Whether a message that came again was handled already; waits for a run to end."""
        future = self._running.get(message_id)
        if future is not None:
            await asyncio.shield(future)
        return self._finished.pop(message_id, self) is None
