"""A line in the log for every message that was handled."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from time import perf_counter
from typing import Any

from queuecraft.model.message import Message
from queuecraft.model.outcome import Postponed
from queuecraft.model.printable import printable
from queuecraft.runtime.handler import Handle


class Logging:
    """Logs what was handled, how long it took, and what went wrong. Where the level is off when a
    worker starts, it costs nothing.

    >>> from queuecraft import QueueCraft
    >>> QueueCraft().use(Logging(level=logging.DEBUG))
    """

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        self._log = logger or logging.getLogger("queuecraft.handling")
        self._level = level

    def __call__(self, handle: Handle) -> Handle:
        if not self._log.isEnabledFor(self._level):
            return handle

        def logged(message: Message[Any]) -> Awaitable[object]:
            return self._logged(handle, message)

        return logged

    async def _logged(self, handle: Handle, message: Message[Any]) -> object:
        started = perf_counter()
        what = "handled"
        try:
            return await handle(message)
        except Postponed as later:
            what = f"postponed {later}"
            raise
        except BaseException as error:
            what = f"failed with {type(error).__name__}"
            raise
        finally:
            self._log.log(
                self._level,
                "%s: %s of %s %s in %.1f ms (attempt %d)",
                message.queue,
                printable(message.id),
                printable(message.routing_key),
                printable(what),
                1000 * (perf_counter() - started),
                message.attempt,
            )
