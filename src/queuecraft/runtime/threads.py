"""Threads for sync handlers: daemons, so that one that hangs cannot keep the process alive."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeAlias

from queuecraft.model.outcome import Postponed

AT_LEAST = 32  # threads that a worker may have
FOR_EACH = 4  # and for each handler that may be at work; those that hang have threads too
AGAIN = 1.0  # seconds until a message is tried again that no thread was there for

_Job: TypeAlias = tuple[
    asyncio.Future[Any], contextvars.Context, Callable[..., Any], tuple[Any, ...]
]


class NoThread(Postponed):
    """There is no thread for a handler. It has not begun, so it has not failed."""


class Threads:
    """Runs functions off the loop; grows as needed and keeps idle threads for the next call.

    A call that was abandoned keeps its thread until it returns. So there is a `limit`: beyond it
    no more threads are started, and a handler finds none.
    """

    def __init__(
        self, name: str, *, limit: int = AT_LEAST, log: logging.Logger | None = None
    ) -> None:
        self._name = name
        self._limit = limit
        self._log = log or logging.getLogger("queuecraft")
        self._warned = False
        self._begun = 0  # calls that have not returned, abandoned ones too
        self._idle: list[SimpleQueue[_Job | None]] = []
        self._lock = threading.Lock()
        self._closed = False
        self.busy = 0
        """Calls whose end the loop has not heard of; those that were abandoned not among them."""

    @property
    def exhausted(self) -> str | None:
        """Why no handler finds a thread, if so."""
        if self._begun < self._limit:
            return None
        return (
            f"{self._begun} sync handlers have not returned from their threads, and no more are "
            "started; give what they wait for a timeout of its own, or restart the process"
        )

    def run(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Call the function in a thread. Cancelling the future abandons it, running on. Raises
        `NoThread` if there is none."""
        return self._run(function, arguments, limited=True)

    def clean_up(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """The same for what ends a call that has begun: this must not wait for others."""
        return self._run(function, arguments, limited=False)

    def _run(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], *, limited: bool
    ) -> asyncio.Future[Any]:
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            if limited and (reason := self.exhausted) is not None:
                raise self._none(reason)
            inbox = self._start()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._begun += 1
        self.busy += 1
        future.add_done_callback(self._ended)
        inbox.put((future, contextvars.copy_context(), function, arguments))
        return future

    def _start(self) -> SimpleQueue[_Job | None]:
        inbox: SimpleQueue[_Job | None] = SimpleQueue()
        thread = threading.Thread(
            target=self._work, args=(inbox,), name=f"queuecraft-{self._name}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # the system, or the container, has no more
            raise self._none(f"no thread can be started: {error}") from error
        return inbox

    def _none(self, reason: str) -> NoThread:
        if not self._warned:
            self._warned = True
            self._log.warning("%s: %s. Its messages wait meanwhile", self._name, reason)
        return NoThread(AGAIN, reason)

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
                loop.call_soon_threadsafe(self._tell, future, result, error)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return
            if closed:
                return
            del future, context, function, arguments, result, error, job

    def _tell(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        self._begun -= 1
        if future.done():
            return
        if error is None:
            future.set_result(result)
        elif isinstance(error, StopIteration):  # a future refuses this one
            future.set_exception(RuntimeError(f"the handler raised {error!r}"))
        else:
            future.set_exception(error)
