"""SIGTERM and SIGINT: once to finish what runs and stop, twice to stop at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import Generator
from functools import partial
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """Shared by all workers of one QueueCraft, so that one signal stops them all."""

    def __init__(self, logger: logging.Logger) -> None:
        self.log = logger
        self.asked = asyncio.Event()
        self.forced = asyncio.Event()
        self._users = 0
        self._before: dict[signal.Signals, Any] = {}

    @contextlib.contextmanager
    def listening(self) -> Generator[None]:
        """Take the signals over while inside; what handled them before does again afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread may; whoever runs us there has to stop us by hand
            return
        self._users += 1
        if self._users == 1:
            heard = partial(self._hear, asyncio.get_running_loop())
            for number in SIGNALS:
                # Not by the loop's own means: those forget what the application had set there.
                self._before[number] = signal.signal(number, heard)
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                for number, handler in self._before.items():
                    with contextlib.suppress(TypeError):  # None: set outside Python
                        signal.signal(number, handler)

    def _hear(self, loop: asyncio.AbstractEventLoop, number: int, frame: FrameType | None) -> None:
        """In the middle of anything: only tell the loop, and wake it."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._on_signal, signal.Signals(number))

    def _on_signal(self, number: signal.Signals) -> None:
        if self.asked.is_set():
            self.log.warning("%s again: stopping at once", number.name)
            self.forced.set()
        else:
            self.log.info("%s: finishing what runs, then stopping", number.name)
            self.asked.set()
