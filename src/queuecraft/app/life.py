"""The life of a QueueCraft: opened, and shut down in the order that loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from queuecraft.model.errors import ConnectionLost
from queuecraft.runtime.delayed import Delayed
from queuecraft.runtime.engine import Engine
from queuecraft.runtime.facts import Shutdown
from queuecraft.runtime.presence import LifeSigns
from queuecraft.runtime.requests import Requests
from queuecraft.runtime.roster import Roster


class Life:
    """There is but one: what was shut down is not opened again."""

    def __init__(
        self,
        engine: Engine,
        roster: Roster,
        presence: LifeSigns,
        requests: Requests,
        delayed: Delayed,
    ) -> None:
        self._engine = engine
        self._roster = roster
        self._presence = presence
        self._requests = requests
        self._delayed = delayed
        self._ending: asyncio.Future[None] | None = None

    async def open(self) -> None:
        """Connect, and declare the queues of all workers."""
        if self._ending is not None:
            raise ConnectionLost("this QueueCraft is shut down; make a new one", operation="open")
        self._roster.check_handlers()
        await self._engine.connection.connect()
        for worker in self._roster:
            if worker.handlers:
                await self._engine.connection.declare(worker.definition)

    async def end(self, timeout: float | None) -> None:
        """Stop gracefully, within `timeout` seconds or the setting `shutdown_timeout`. Giving up
        on this call does not give up the end; called again, it waits for the same."""
        if self._ending is None:
            limit = self._engine.settings.shutdown_timeout if timeout is None else timeout
            self._ending = asyncio.ensure_future(self._end(limit))
        await asyncio.shield(self._ending)

    async def _end(self, timeout: float) -> None:
        engine = self._engine
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        stops = (worker.stop(timeout=timeout) for worker in self._roster)
        for error in await asyncio.gather(*stops, return_exceptions=True):
            if error is not None:  # the rest is to be closed all the same
                engine.facts.log.error("a worker did not stop well", exc_info=error)
        await _by(deadline, self._presence.close())
        await self._requests.close()  # not before: what the workers finish may wait for replies
        await self._delayed.close(max(1.0, deadline - loop.time()))
        await _by(deadline, engine.publisher.flush())
        await engine.publisher.close()
        for close in engine.closing:
            await _by(deadline, _quietly(close, engine.facts.log))
        await engine.connection.close()
        engine.watchdog.stop()
        await _by(deadline, engine.facts.flush())
        engine.facts.emit(Shutdown())
        await _by(deadline, engine.facts.flush())  # some may observe this one with a coroutine


async def _by(deadline: float, work: Awaitable[None]) -> None:
    """Wait for it until the deadline, but a second at least."""
    left = deadline - asyncio.get_running_loop().time()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(work, max(1.0, left))


async def _quietly(close: Callable[[], Awaitable[Any]], log: logging.Logger) -> None:
    try:
        await close()
    except Exception as error:  # the rest is to be closed all the same
        log.error("middleware did not close well", exc_info=error)
