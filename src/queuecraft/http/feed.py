"""Facts as they happen, for everybody who listens: `GET /events`."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from starlette.responses import Response

from queuecraft.app import QueueCraft
from queuecraft.http.refusal import Refusal
from queuecraft.http.story import kind_of, told
from queuecraft.runtime.facts import Fact

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

MOST = 32  # who may listen at once
WAITING = 256  # facts kept for one who is slow; what comes beyond is dropped and counted
LONGEST = 3600.0  # seconds; who still listens then comes again, with a token that still holds
HEARTBEAT = 15.0  # seconds; a proxy hangs up on a connection that is silent for too long
SLOWEST = 60.0  # seconds for one event to be taken; who takes none has no use for its place


class Listener:
    """One who listens, and what it has not been told yet."""

    def __init__(
        self, kinds: frozenset[str] = frozenset(), may: Callable[[], bool] = lambda: True
    ) -> None:
        self.closed = False
        self._kinds = kinds
        self._may = may
        self._waiting: deque[str] = deque()
        self._dropped = 0
        self._news = asyncio.Event()

    def wants(self, kind: str) -> bool:
        """Whether it asked for this kind of fact, or for all."""
        return not self._kinds or kind in self._kinds

    def tell(self, kind: str, event: str) -> None:
        """Keep an event for it; one too many is dropped."""
        if self.wants(kind):
            if len(self._waiting) < WAITING:
                self._waiting.append(event)
            else:
                self._dropped += 1
            self._news.set()

    def close(self) -> None:
        """Tell what is left, then nothing more."""
        self.closed = True
        self._news.set()

    async def events(self) -> AsyncGenerator[str]:
        """What happens, as server-sent events, until it is closed."""
        yield "retry: 2000\n: listening\n\n"
        end = asyncio.get_running_loop().time() + LONGEST
        while True:
            self._news.clear()
            while self._waiting and self._may():
                if self._dropped:
                    count, self._dropped = self._dropped, 0
                    yield f'event: dropped\ndata: {{"count": {count}}}\n\n'
                yield self._waiting.popleft()
            left = end - asyncio.get_running_loop().time()
            if self.closed or left <= 0 or not self._may():
                return
            try:
                await asyncio.wait_for(self._news.wait(), min(HEARTBEAT, left))
            except TimeoutError:
                yield ": still here\n\n"


class Feed:
    """Everybody who listens. Facts are observed only while somebody does."""

    def __init__(self, qc: QueueCraft) -> None:
        self._qc = qc
        self._listeners: set[Listener] = set()
        self._stop: Callable[[], None] | None = None
        self._number = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self._listeners)

    def join(
        self, kinds: frozenset[str] = frozenset(), may: Callable[[], bool] = lambda: True
    ) -> Listener:
        """One more who listens, to these kinds of facts or to all, for as long as it may."""
        if self._closed or len(self._listeners) >= MOST:
            why = "the service is stopping" if self._closed else f"{MOST} listen already"
            raise Refusal(503, "Busy", why, "try again later", {"Retry-After": "5"})
        listener = Listener(kinds, may)
        self._listeners.add(listener)
        if self._stop is None:
            self._stop = self._qc.observe(Fact, self._hear)
        return listener

    def leave(self, listener: Listener) -> None:
        """One who listens no more."""
        self._listeners.discard(listener)
        if not self._listeners and self._stop is not None:
            self._stop()
            self._stop = None

    @contextlib.contextmanager
    def listening(
        self, kinds: frozenset[str] = frozenset(), may: Callable[[], bool] = lambda: True
    ) -> Generator[Listener]:
        """One more who listens, while the block runs."""
        listener = self.join(kinds, may)
        try:
            yield listener
        finally:
            self.leave(listener)

    def close(self) -> None:
        """Let everybody go; a server that stops waits for them."""
        self._closed = True
        for listener in self._listeners:
            listener.close()

    def _hear(self, fact: Fact) -> None:
        kind = kind_of(fact)
        if any(listener.wants(kind) for listener in self._listeners):
            self._number += 1
            event = f"id: {self._number}\nevent: {kind}\ndata: {told(fact)}\n\n"
            for listener in self._listeners:
                listener.tell(kind, event)


class Teller(Protocol):
    """Somebody with something to tell."""

    def events(self) -> AsyncGenerator[str]:
        """Server-sent events, until there is no more to tell."""
        ...


class EventStream(Response):
    """An answer that goes on until the client hangs up, or there is no more to tell."""

    media_type = "text/event-stream"

    def __init__(self, telling: Callable[[], AbstractContextManager[Teller]]) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._telling = telling

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send what happens."""
        with self._telling() as teller:
            gone = asyncio.ensure_future(_gone(receive))
            telling = asyncio.ensure_future(self._tell(teller, send))
            try:
                await asyncio.wait((gone, telling), return_when=asyncio.FIRST_COMPLETED)
                if telling.done():
                    telling.result()
            finally:
                for task in (gone, telling):
                    task.cancel()
                await asyncio.gather(gone, telling, return_exceptions=True)

    async def _tell(self, teller: Teller, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        async with contextlib.aclosing(teller.events()) as events:
            async for event in events:
                part = {"type": "http.response.body", "body": event.encode(), "more_body": True}
                try:
                    async with asyncio.timeout(SLOWEST):
                        await send(part)
                except TimeoutError:
                    return  # what has been sent is all it gets
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
