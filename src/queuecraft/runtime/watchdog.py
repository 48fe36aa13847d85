"""Notices when the event loop stops turning, and says which line keeps it."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback

from queuecraft.runtime.facts import Facts, LoopBlocked


class Watchdog:
    """A thread that asks the loop for a sign of life and logs the stack when none comes.

    Costs a handful of wake-ups a second and nothing per message.
    """

    def __init__(self, facts: Facts, limit: float = 1.0) -> None:
        self._facts = facts
        self._limit = limit
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Watch the running loop."""
        if self._thread is None or not self._thread.is_alive():
            self._stop = threading.Event()  # its own: one told to stop must never go on
            self._thread = threading.Thread(
                target=self._watch,
                args=(asyncio.get_running_loop(), threading.get_ident(), self._stop),
                name="queuecraft-watchdog",
                daemon=True,
            )
            self._thread.start()

    def stop(self) -> None:
        """Stop watching."""
        self._stop.set()
        self._thread = None

    def _watch(
        self, loop: asyncio.AbstractEventLoop, loop_thread: int, stop: threading.Event
    ) -> None:
        answered = threading.Event()
        while not stop.wait(self._limit / 4):
            answered.clear()
            asked = time.monotonic()
            try:
                loop.call_soon_threadsafe(answered.set)
                if answered.wait(self._limit) or stop.is_set():
                    continue
                frame = sys._current_frames().get(loop_thread)  # pyright: ignore[reportPrivateUsage]
                stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
                del frame
                seconds = time.monotonic() - asked
                fact = LoopBlocked(seconds=seconds, stack=stack)
                loop.call_soon_threadsafe(self._facts.emit, fact)
                self._facts.log.warning(
                    "the event loop has been blocked for %.1f s; make the handler sync (it then "
                    "runs in a thread) or await what it waits for. It is here:\n%s",
                    seconds,
                    stack,
                )
            except RuntimeError:  # the loop is closed
                return
            while not stop.is_set() and not answered.wait(self._limit / 4):
                pass  # one report for each time it is blocked
