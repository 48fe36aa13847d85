"""Being asked to stop: once to finish what runs, twice to do so at once, and never to hang."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from types import FrameType

FAILED = 1
GRACE = 3.0  # seconds that a forced stop gets for giving messages back
MARGIN = 5.0  # seconds beyond the shutdown timeout for closing everything

SIGNALS = (signal.SIGTERM, signal.SIGINT)
TOGETHER = 0.2  # seconds; `timeout` signals a process and its group, and means it once


class Count:
    """How often a stop was asked for; what comes together counts once.

    >>> count = Count()
    >>> count.next(at=10.0), count.next(at=10.1), count.next(at=11.0)
    (1, 1, 2)
    """

    def __init__(self) -> None:
        self._times = 0
        self._last = float("-inf")

    def next(self, at: float) -> int:
        """The number of the one that came at this time."""
        if at - self._last > TOGETHER:
            self._times += 1
            self._last = at
        return self._times


class StoppedEarly(BaseException):
    """A signal came before there was anything to finish."""


class Stop:
    """Asked for by a signal, or by the supervisor over its line.

    Signals count, words of the supervisor do not: a terminal or a service manager may signal the
    whole group, supervisor and all, and what then arrives here twice was meant once.
    """

    def __init__(self, log: logging.Logger) -> None:
        self.asked = asyncio.Event()
        self.forced = asyncio.Event()
        self._log = log
        self._patience = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._signals = Count()

    def listen(self, *, supervised: bool) -> None:
        """Take the signals over, for the rest of the life of this process."""
        for number in SIGNALS:
            signal.signal(number, self._hear)
        if supervised:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the supervisor answers to it
        elif signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as `nohup` leaves it
            signal.signal(signal.SIGHUP, self._hear)
        # A supervisor starts its children with these blocked, so that none arrives too early.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*SIGNALS, signal.SIGHUP))

    def begin(self, patience: float) -> None:
        """From now on there is something to finish, in the running loop, within `patience`."""
        self._loop = asyncio.get_running_loop()
        self._patience = patience

    def ask(self, why: str) -> None:
        """Finish what runs, then stop. Said again, it changes nothing."""
        if not self.asked.is_set():
            self._log.info("%s: finishing what runs, then stopping", why)
            self._end_within(self._patience + MARGIN)
            self.asked.set()

    def force(self, why: str) -> None:
        """Stop at once."""
        if not self.forced.is_set():
            self._log.warning("%s: stopping at once", why)
            self._end_within(GRACE)
            self.asked.set()
            self.forced.set()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self._loop is None:
            raise StoppedEarly
        name = signal.Signals(number).name
        if self._signals.next(time.monotonic()) == 1:
            call, why, seconds = self.ask, name, self._patience + MARGIN
        else:
            call, why, seconds = self.force, f"{name} again", GRACE
        self._end_within(seconds)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(call, why)

    def _end_within(self, seconds: float) -> None:
        # By the kernel, not by the loop: a handler may keep that from turning.
        left, _ = signal.getitimer(signal.ITIMER_REAL)
        if left == 0 or left > seconds:
            signal.signal(signal.SIGALRM, _end)
            signal.setitimer(signal.ITIMER_REAL, seconds)


def _end(number: int, frame: FrameType | None) -> None:
    """The end of all patience; nothing that could hang is asked any more."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(FAILED)
