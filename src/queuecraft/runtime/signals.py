"""SIGTERM and SIGINT: once to finish what runs and stop, twice to stop at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
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
        self._taken = contextlib.ExitStack()

    @contextlib.contextmanager
    def listening(self) -> Generator[None]:
        """Take the signals over while inside; what handled them before does again afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread may; whoever runs us there has to stop us by hand
            return
        self._users += 1
        if self._users == 1:
            self._taken.enter_context(self._taking_over(asyncio.get_running_loop()))
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                self._taken.close()

    @contextlib.contextmanager
    def _taking_over(self, loop: asyncio.AbstractEventLoop) -> Generator[None]:
        # Not by the loop's own means: those forget what the application had set there.
        heard = partial(self._hear, loop)
        with _waking(loop):
            before: dict[signal.Signals, Any] = {
                number: signal.signal(number, heard) for number in SIGNALS
            }
            try:
                yield
            finally:
                for number, handler in before.items():
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


@contextlib.contextmanager
def _waking(loop: asyncio.AbstractEventLoop) -> Generator[None]:
    """A signal that comes just before the loop goes to sleep is heard when something wakes it,
    which may be never; so it writes a byte that does."""
    read, write = socket.socketpair()
    with read, write:
        read.setblocking(False)
        write.setblocking(False)
        before = signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
        if before != -1:  # the loop, or the application, sees to it already
            signal.set_wakeup_fd(before)
            yield
            return
        loop.add_reader(read, read.recv, 4096)
        try:
            yield
        finally:
            loop.remove_reader(read)
            if (latest := signal.set_wakeup_fd(-1)) != write.fileno():
                signal.set_wakeup_fd(latest)
