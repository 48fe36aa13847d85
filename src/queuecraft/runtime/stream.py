"""Messages as an async iterator: a worker whose handler is the body of your loop."""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Any, Generic, Self

from queuecraft.model.message import Message
from queuecraft.model.types import T
from queuecraft.runtime.worker import Worker


class MessageStream(Generic[T]):
    """Yields one message at a time. Going on to the next acknowledges the last, unless it was
    settled by hand; leaving the loop in the middle of one gives it back as a redelivery.

    Close it with `async with` or `await stream.close()` when leaving the loop early. The loop
    ends by itself when the stream is closed or its QueueCraft shut down, and with `ConnectionLost`
    when the connection is given up.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._offers: deque[tuple[Message[T], asyncio.Future[None]]] = deque()
        self._changed = asyncio.Event()
        self._current: asyncio.Future[None] | None = None
        self._end: asyncio.Future[None] | None = None
        self._closed = False

    async def handle(self, message: Message[Any]) -> None:
        """What the worker runs: offer the message and wait until the loop is done with it."""
        message.payload  # noqa: B018  a payload that cannot be read never reaches the loop
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._offers.append((message, done))
        self._changed.set()
        await done

    async def open(self) -> None:
        """Start receiving now; otherwise the first turn of the loop does."""
        if self._closed or self._end is not None:
            return
        await self._worker.start()
        self._end = asyncio.ensure_future(self._worker.until_stopped())
        self._end.add_done_callback(self._ended)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message[T]:
        if self._current is not None and not self._current.done():
            self._current.set_result(None)
        self._current = None
        await self.open()
        while not self._closed and self._end is not None and not self._end.done():
            # Nothing is awaited between taking an offer and handing it out: a cancelled wait
            # must not lose one.
            while self._offers:
                message, done = self._offers.popleft()
                if not done.done():  # not if its ack timeout has passed while it waited
                    self._current = done
                    return message
            self._changed.clear()
            await self._changed.wait()
        error = None if self._closed or self._end is None else self._end.exception()
        if error is not None:
            self._end = None  # asked again, it may find a new connection
            raise error
        raise StopAsyncIteration

    async def close(self) -> None:
        """Stop; a message not yet finished with goes back."""
        self._closed = True
        self._changed.set()
        await self._worker.stop(drain=False, requeue_in_flight=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _ended(self, end: asyncio.Future[None]) -> None:
        if not end.cancelled():
            end.exception()  # perhaps nobody asks for another message
        self._changed.set()
