"""What a process has one of: the thread with the loop, an end, and forks of itself."""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from queuecraft.sync.thread import Call, LoopThread

PATIENCE = 5.0  # seconds that the end of a process, or a fork, waits at most


class Guest(ABC):
    """Something that lives in the loop of the process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        _process.guests.add(self)

    @abstractmethod
    def end(self, timeout: float) -> Call[None] | None:
        """Begin to close for good, if there is anything to close."""

    @abstractmethod
    def rest(self) -> Call[None] | None:
        """Begin to close what must not be open in two processes; the next use opens it again."""

    @abstractmethod
    def inherited(self) -> object | None:
        """Forget what a parent process has opened, and hand it over."""


class Process:
    """This process: it has one loop, however many guests live in it."""

    def __init__(self) -> None:
        self.guests: WeakSet[Guest] = WeakSet()
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._thread: LoopThread | None = None
        self._locked: list[Guest] = []

    def thread(self) -> LoopThread:
        """The thread with the loop, started by whoever first asks."""
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = LoopThread()
        return self._thread

    def notice_fork(self) -> None:
        """Begin anew if this is a child that nobody has told so: uWSGI forks behind Python's
        back."""
        if self._pid != os.getpid():
            self.after_fork_in_child()

    # -- the end -------------------------------------------------------------------------------

    def end(self) -> None:
        """Close every guest, and the loop; what takes too long is left to the system."""
        self.notice_fork()
        thread = self._thread
        if thread is None or thread.is_current:
            return
        _wait_for(each.end(PATIENCE / 2) for each in tuple(self.guests))
        thread.stop(timeout=1.0)

    # -- forks ---------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Let nothing be half done in the memory that the child gets a copy of."""
        self._lock.acquire()
        self._locked = list(self.guests)
        for guest in self._locked:
            guest.lock.acquire()
        if self._thread is not None and not self._thread.is_current:
            _wait_for(guest.rest() for guest in self._locked)

    def after_fork_in_parent(self) -> None:
        """Go on."""
        locked, self._locked = self._locked, []
        for guest in locked:
            guest.lock.release()
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Begin anew: no thread but this one is here, and all that is open is the parent's."""
        self._pid = os.getpid()
        self._locked = []
        for guest in tuple(self.guests):
            guest.lock = threading.RLock()
            _make_immortal(guest.inherited())
        self._lock = threading.RLock()
        _make_immortal(self._thread)
        self._thread = None


def _wait_for(calls: Iterable[Call[None] | None]) -> None:
    deadline = time.monotonic() + PATIENCE
    for call in [call for call in calls if call is not None]:
        with suppress(Exception):
            call.wait(max(0.0, deadline - time.monotonic()))


def _make_immortal(inherited: Any) -> None:
    """Let it never be torn down: that would be done to connections that the parent still uses, or
    wait for threads that are not here."""
    if inherited is not None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))


_process = Process()
atexit.register(_process.end)
os.register_at_fork(
    before=_process.before_fork,
    after_in_parent=_process.after_fork_in_parent,
    after_in_child=_process.after_fork_in_child,
)


def notice_fork() -> None:
    """To be called before the lock of a guest is taken: in a child it may be held by a thread that
    is not there."""
    _process.notice_fork()


def loop_thread() -> LoopThread:
    """The thread with the loop of this process."""
    return _process.thread()
