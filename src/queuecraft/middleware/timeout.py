"""An end to handlers that take too long."""

from __future__ import annotations

import asyncio
from asyncio import current_task
from typing import Any

from queuecraft.clock import Clock, Timer
from queuecraft.model.errors import ConfigError
from queuecraft.model.message import Message
from queuecraft.model.policy import is_number
from queuecraft.runtime.engine import Engine
from queuecraft.runtime.handler import Handle
from queuecraft.runtime.slot import at_work

NEVER = float("inf")


class Timeout:
    """Cancels a handler that has run for so many seconds; it has failed with a `TimeoutError`, and
    is retried as after any failure. One timer serves all handlers.

    A thread cannot be cancelled: a sync handler goes on, while its message is retried.

    >>> from queuecraft import QueueCraft
    >>> QueueCraft().use(Timeout(30))
    """

    def __init__(self, seconds: float) -> None:
        if not is_number(seconds) or not 0 < seconds < float("inf"):
            raise ConfigError(f"Timeout({seconds!r}): expected seconds above 0")
        self._seconds = seconds
        self._clock = Clock()
        self._until: dict[asyncio.Task[Any], float] = {}  # a runner's handler has to end
        self._late: set[asyncio.Task[Any]] = set()
        self._timer: Timer | None = None

    def attach(self, engine: Engine) -> None:
        """Use the clock of a QueueCraft."""
        if engine.clock is not self._clock and self._timer is not None:
            self._timer.cancel()  # by a clock that may never move again
            self._timer = None
            self._until.clear()
        self._clock = engine.clock

    def __call__(self, handle: Handle) -> Handle:
        until, late = self._until, self._late
        seconds, now = self._seconds, self._clock.monotonic

        async def timed(message: Message[Any]) -> object:
            task = at_work.get() or current_task()
            assert task is not None
            until[task] = now() + seconds
            if self._timer is None:
                self._timer = self._clock.call_later(seconds, self._look)
            try:
                return await handle(message)
            except asyncio.CancelledError as error:
                if task in late and task.cancelling() == 1:
                    raise TimeoutError(f"the handler took more than {seconds:g} s") from error
                raise
            finally:
                until[task] = NEVER  # a runner comes again soon: its place is kept
                if late and task in late:  # whether it cared or not
                    late.discard(task)
                    task.uncancel()

        return timed

    def _look(self) -> None:
        """Cancel those whose time is over, and come again for the next."""
        self._timer = None
        now, soonest = self._clock.monotonic(), NEVER
        for task, until in list(self._until.items()):
            if task.done():  # its runner has ended
                del self._until[task]
            elif until <= now:
                self._until[task] = NEVER
                self._late.add(task)
                task.cancel()
            else:
                soonest = min(soonest, until)
        if soonest < NEVER:
            self._timer = self._clock.call_later(soonest - now, self._look)
