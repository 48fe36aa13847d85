"""Threads for sync handlers: daemons, so that one that hangs cannot keep the process alive."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeAlias

_Job: TypeAlias = tuple[
    asyncio.Future[Any], contextvars.Context, Callable[..., Any], tuple[Any, ...]
]


class Threads:
    """Runs functions off the loop; grows as needed and keeps idle threads for the next call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._idle: list[SimpleQueue[_Job | None]] = []
        self._lock = threading.Lock()
        self._closed = False
        self.busy = 0
        """Calls whose end the loop has not heard of; those that were abandoned not among them."""

    def run(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Call the function in a thread. Cancelling the future abandons it, running on."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        job = (future, contextvars.copy_context(), function, arguments)
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = SimpleQueue()
            threading.Thread(
                target=self._work, args=(inbox,), name=f"queuecraft-{self._name}", daemon=True
            ).start()
        self.busy += 1
        future.add_done_callback(self._ended)
        inbox.put(job)
        return future

    def _ended(self, _: asyncio.Future[Any]) -> None:
        self.busy -= 1

    def close(self) -> None:
        """Let idle threads end; busy ones end when their call does."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for inbox in idle:
            inbox.put(None)

    def _work(self, inbox: SimpleQueue[_Job | None]) -> None:
        while (job := inbox.get()) is not None:
            future, context, function, arguments = job
            try:
                result, error = context.run(function, *arguments), None
            except BaseException as raised:  # whatever it is, the waiting handler must hear of it
                result, error = None, raised
            loop = future.get_loop()
            with self._lock:
                closed = self._closed
                if not closed:
                    self._idle.append(inbox)
            try:
                loop.call_soon_threadsafe(_tell, future, result, error)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return
            if closed:
                return
            del future, context, function, arguments, result, error, job


def _tell(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration):  # a future refuses this one
        future.set_exception(RuntimeError(f"the handler raised {error!r}"))
    else:
        future.set_exception(error)
