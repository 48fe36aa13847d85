"""Messages as an async iterator: a worker whose handler is the body of your loop."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Generic, Self

from queuecraft.model.message import Message
from queuecraft.model.types import T
from queuecraft.runtime.worker import Worker


class MessageStream(Generic[T]):
    """Yields one message at a time. Going on to the next acknowledges the last, unless it was
    settled by hand; leaving the loop in the middle of one gives it back as a redelivery.

    Close it with `async with` or `await stream.close()` when leaving the loop early.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._offers: asyncio.Queue[tuple[Message[T], asyncio.Future[None]]] = asyncio.Queue()
        self._current: asyncio.Future[None] | None = None
        self._closed = asyncio.Event()

    async def handle(self, message: Message[Any]) -> None:
        """What the worker runs: offer the message and wait until the loop is done with it."""
        message.payload  # noqa: B018  a payload that cannot be read never reaches the loop
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._offers.put_nowait((message, done))
        await done

    async def open(self) -> None:
        """Start receiving now; otherwise the first turn of the loop does."""
        await self._worker.start()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message[T]:
        if self._current is not None and not self._current.done():
            self._current.set_result(None)
        self._current = None
        if self._closed.is_set():
            raise StopAsyncIteration
        await self._worker.start()
        while True:
            offer = asyncio.ensure_future(self._offers.get())
            closed = asyncio.ensure_future(self._closed.wait())
            try:
                await asyncio.wait((offer, closed), return_when=asyncio.FIRST_COMPLETED)
            finally:
                closed.cancel()
                if not offer.done():
                    offer.cancel()
            if offer.cancelled() or not offer.done():
                raise StopAsyncIteration
            message, done = offer.result()
            if not done.done():  # not if its ack timeout has passed while it waited
                self._current = done
                return message

    async def close(self) -> None:
        """Stop; a message not yet finished with goes back."""
        self._closed.set()
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
