"""An event loop in a thread of its own, for code that has none."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Generic, TypeVar

from queuecraft.model.errors import ConnectionLost

R = TypeVar("R")


class Call(Generic[R]):
    """Something a thread wants done in the loop, in the context of that thread."""

    def __init__(self, work: Callable[[], Awaitable[R]]) -> None:
        self._work = work
        self._context = copy_context()  # so that a trace goes on in what is published
        self._answer: Future[R] = Future()
        self._task: asyncio.Task[None] | None = None
        self._given_up = False

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Do it; called in the loop."""
        if not self._given_up:
            self._task = loop.create_task(self._run(), context=self._context)

    def cancel(self) -> None:
        """Nobody waits for it any more; called in the loop."""
        self._given_up = True
        if self._task is not None:
            self._task.cancel()

    def refuse(self, error: Exception) -> None:
        """Say that it was not done."""
        self._answer.set_exception(error)

    def wait(self, timeout: float | None = None) -> R:
        """What came of it; `TimeoutError` if that takes longer."""
        return self._answer.result(timeout)

    async def _run(self) -> None:
        try:
            result = await self._work()
        except asyncio.CancelledError:
            lost = ConnectionLost("shut down before the broker answered; make a new QueueCraft")
            self._answer.set_exception(lost)
            raise
        except BaseException as error:
            self._answer.set_exception(error)
        else:
            self._answer.set_result(result)


class LoopThread:
    """Runs what other threads submit. What comes at the same time is begun in the same turn of the
    loop, so that the publishes of many threads fly together.

    >>> async def answer() -> int:
    ...     return 42
    >>> thread = LoopThread()
    >>> thread.submit(answer).wait()
    42
    >>> thread.stop(timeout=5)
    True
    """

    def __init__(self) -> None:
        self._calls: deque[Call[Any]] = deque()
        self._awake = False
        self._loop = asyncio.new_event_loop()
        # A daemon: the interpreter is to end even if a broker never answers.
        self._thread = threading.Thread(target=self._run, name="queuecraft", daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether this is the thread that asks."""
        return threading.current_thread() is self._thread

    def submit(self, work: Callable[[], Awaitable[R]]) -> Call[R]:
        """Have it done in the loop."""
        call = Call(work)
        self._calls.append(call)
        if not self._awake:
            self._awake = True  # first: it may be begun before we are told that it was asked for
            try:
                self._loop.call_soon_threadsafe(self._begin)
            except RuntimeError:
                self._awake = False
                raise _over() from None
        return call

    def give_up(self, call: Call[Any]) -> None:
        """Cancel what nobody waits for any more."""
        with suppress(RuntimeError):  # the loop has ended, and everything in it
            self._loop.call_soon_threadsafe(call.cancel)

    def stop(self, timeout: float) -> bool:
        """End the loop and what runs in it; whether that was done in time."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _begin(self) -> None:
        self._awake = False  # first: who comes from now on wakes us again
        while self._calls:
            self._calls.popleft().begin(self._loop)

    def _run(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.wait(tasks, timeout=1.0))
            loop.run_until_complete(loop.shutdown_asyncgens())
            asyncio.set_event_loop(None)
            loop.close()
            self._awake = False
            while self._calls:
                self._calls.popleft().refuse(_over())


def _over() -> ConnectionLost:
    return ConnectionLost("the process is about to end, nothing was sent")
