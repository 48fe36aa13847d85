"""The async QueueCraft behind a sync one: one for each process that uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from queuecraft.app import QueueCraft
from queuecraft.drivers.local import path_of
from queuecraft.model.errors import ConfigError, ConnectionLost
from queuecraft.sync.process import Guest, loop_thread, notice_fork
from queuecraft.sync.thread import Call

R = TypeVar("R")


class Held(Guest):
    """Makes an async QueueCraft, and gives it work in the loop of this process."""

    def __init__(self, make: Callable[[], QueueCraft]) -> None:
        self._make = make
        self._qc: QueueCraft | None = make()  # so that a wrong setting is told now
        self._used = False  # by this process
        self._closed = False
        self._is_file = _is_file(self._qc.settings.url)
        super().__init__()

    @property
    def current(self) -> QueueCraft:
        """The one of this process; nothing but the loop may use what it is connected with."""
        notice_fork()
        with self.lock:
            if self._qc is None:
                self._qc = self._make()
            return self._qc

    def do(self, work: Callable[[QueueCraft], Awaitable[R]], timeout: float | None = None) -> R:
        """Do it in the loop, and wait for what comes of it."""
        refuse_in_a_loop()
        notice_fork()
        thread = loop_thread()  # outside of the lock: a fork takes the two the other way round
        # What was submitted before a fork, or before the end, is begun before it.
        with self.lock:
            if self._closed:
                raise ConnectionLost("this QueueCraft is shut down; make a new one")
            self._used = True
            call = thread.submit(partial(work, self.current))
        try:
            return call.wait(timeout)
        except BaseException:  # an error of its own, a Ctrl-C, or it takes too long
            thread.give_up(call)
            raise

    def close(self, timeout: float | None) -> None:
        """Close it for good."""
        refuse_in_a_loop()
        call = self.end(timeout)
        if call is not None:
            call.wait()

    def abandon(self) -> None:
        """Close it, if nobody did, when nobody can use it any more."""
        if not self._closed and self._used:
            self.end(timeout=None)

    # -- as a guest ----------------------------------------------------------------------------

    def end(self, timeout: float | None) -> Call[None] | None:
        notice_fork()
        with self.lock:
            self._closed = True
            return self._shutdown(timeout)

    def rest(self) -> Call[None] | None:
        # A file of SQLite that a parent has open cannot be opened by a child without harm: both
        # would believe that they hold locks which only one of them has.
        if not self._is_file or self._closed:
            return None
        call, self._qc = self._shutdown(None), None
        return call

    def inherited(self) -> object | None:
        if not self._used:
            return None  # it was never connected, and will do here as well
        found, self._qc, self._used = self._qc, None, False
        return found

    def _shutdown(self, timeout: float | None) -> Call[None] | None:
        used, self._used = self._used, False
        if self._qc is None or not used:
            return None
        return loop_thread().submit(partial(self._qc.shutdown, timeout))


def refuse_in_a_loop() -> None:
    """Blocking a thread that runs an event loop would stop everything else in it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigError(
        "queuecraft.sync was called from inside a running event loop, which it would block; use "
        "the async queuecraft.QueueCraft there, and await it"
    )


def _is_file(url: str) -> bool:
    return url.partition("://")[0].lower() == "local" and path_of(url) is not None
