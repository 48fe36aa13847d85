"""One connection to a Redis: commands out, replies in, in the order they were asked for."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from hashlib import sha1
from time import monotonic
from typing import Any, Final, TypeAlias, cast

import hiredis

from queuecraft.drivers.base import ConnectionLost
from queuecraft.model.errors import QueueError

Argument: TypeAlias = bytes | str | int
"""What a command may be made of."""

MORE: Final = object()  # what the reader gives when a reply is not whole yet
pack: Final = cast("Callable[[tuple[Argument, ...]], bytes]", hiredis.pack_command)
GOODBYE: Final = 1.0  # seconds to get rid of what is still to be written


class RedisError(QueueError):
    """An error that the server has answered. Its `code` is the first word: `WRONGTYPE`, `OOM`.

    >>> RedisError("NOAUTH Authentication required.").code
    'NOAUTH'
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, broker="redis")
        self.code = message.partition(" ")[0]


class Script:
    """A Lua script; the server knows it by its digest once it has seen it.

    >>> Script("return 1").digest
    'e0e1f9fabfc9d4800c877a703b823ac0578ff8db'
    """

    __slots__ = ("digest", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = sha1(text.encode(), usedforsecurity=False).hexdigest()


class Client(asyncio.Protocol):
    """Replies belong to commands by their order alone: whoever gives up waiting leaves a place
    that swallows its reply. Lost, it fails everyone who waits, and stays lost."""

    def __init__(self, on_push: Callable[[Sequence[Any]], None] | None = None) -> None:
        self.lost: ConnectionLost | None = None
        self.on_lost: Callable[[ConnectionLost], None] | None = None
        self._on_push = on_push
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = hiredis.Reader(replyError=RedisError, notEnoughData=MORE)
        self._waiting: deque[asyncio.Future[Any] | _Batch | None] = deque()
        self._out: list[bytes] = []
        self._writing = False  # a flush is on its way
        self._full: asyncio.Future[None] | None = None
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._beat = 0.0
        self._beat_timer: asyncio.TimerHandle | None = None
        self._heard = self._asked = monotonic()

    # -- asking --------------------------------------------------------------------------------

    def ask(self, *command: Argument, now: bool = False) -> asyncio.Future[Any]:
        """The reply to a command, once it has come; it may be a `RedisError`. With `now`, it does
        not wait for others of this turn of the loop, unless there are some already."""
        waiter = self._loop.create_future()
        self._write(pack(command), waiter, now=now)
        return waiter

    async def call(self, *command: Argument, now: bool = False) -> Any:
        """The reply to a command. Raises `RedisError` if it is one."""
        if self._full is not None:
            await self._drained()
        reply = await self.ask(*command, now=now)
        if isinstance(reply, RedisError):
            raise reply
        return reply

    async def calls(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """The replies to commands that are sent together; an error is one of the replies."""
        if not commands:
            return []
        if self._full is not None:
            await self._drained()
        batch = _Batch(self._loop.create_future(), len(commands))
        packed = [pack(tuple(command)) for command in commands]
        self._write(b"".join(packed), batch)
        self._waiting.extend([batch] * (len(commands) - 1))
        return await batch.future

    async def eval(
        self,
        script: Script,
        keys: Sequence[Argument],
        arguments: Sequence[Argument],
        *,
        now: bool = False,
    ) -> Any:
        """The result of a script, which is sent as a whole only if the server does not know it."""
        known = ("EVALSHA", script.digest)
        try:
            return await self.call(*known, len(keys), *keys, *arguments, now=now)
        except RedisError as error:
            if error.code != "NOSCRIPT":
                raise
        return await self.call("EVAL", script.text, len(keys), *keys, *arguments)

    def tell(self, *command: Argument) -> None:
        """Send what is answered by a push alone: SUBSCRIBE and its like."""
        self._write(pack(command))

    # -- life ----------------------------------------------------------------------------------

    def beat(self, seconds: float) -> None:
        """Ask for a sign of life when it has been quiet for half of so many seconds; give up when
        an answer is owed and nothing has come for twice as long."""
        self._beat = seconds
        self._beat_timer = self._loop.call_later(seconds / 2, self._on_beat)

    async def close(self) -> None:
        """Write what is to be written, and wait until the socket is closed."""
        if self.lost is None and self._transport is not None:
            self._flush()
            self._stop(_lost("closed"))
            self._transport.close()
            try:
                async with asyncio.timeout(GOODBYE):
                    await asyncio.shield(self._closed)
            except TimeoutError:
                self._transport.abort()
        await asyncio.shield(self._closed)

    def abort(self, error: ConnectionLost) -> None:
        """Give the connection up."""
        if self._transport is not None:
            self._transport.abort()
        elif not self._closed.done():
            self._closed.set_result(None)
        self._stop(error)

    # -- what the loop calls -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # that of uvloop is no subclass

    def connection_lost(self, exc: Exception | None) -> None:
        why = "the connection was cut" if exc is None else f"the connection broke: {exc}"
        self._stop(_lost(why))
        if not self._closed.done():
            self._closed.set_result(None)

    def pause_writing(self) -> None:
        if self._full is None:
            self._full = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._full is not None:
            self._full.set_result(None)
            self._full = None

    def data_received(self, data: bytes) -> None:
        if self.lost is not None:
            return
        self._heard = monotonic()
        reader, waiting = self._reader, self._waiting
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not MORE:
                if type(reply) is hiredis.PushNotification:
                    if self._on_push is not None:
                        self._on_push(reply)
                    continue
                waiter = waiting.popleft()
                if waiter is None:
                    continue
                if isinstance(waiter, _Batch):
                    waiter.add(reply)
                elif not waiter.done():
                    waiter.set_result(reply)
        except IndexError:
            self.abort(_lost("the server answered what nobody had asked"))
        except hiredis.HiredisError as error:
            self.abort(_lost(_misunderstood(data, error)))

    # -- inside --------------------------------------------------------------------------------

    def _write(
        self, data: bytes, *waiters: asyncio.Future[Any] | _Batch | None, now: bool = False
    ) -> None:
        if self.lost is not None:
            raise _again(self.lost)
        if waiters:
            if not self._waiting:
                self._asked = monotonic()
            self._waiting.extend(waiters)
        if now and not self._writing and self._transport is not None:
            self._transport.write(data)
            return
        self._out.append(data)
        if not self._writing:
            self._writing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._writing = False
        out, self._out = self._out, []
        if self._transport is not None and self.lost is None and out:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    async def _drained(self) -> None:
        """Wait while the server takes less than we write."""
        while self._full is not None:
            await asyncio.shield(self._full)

    def _on_beat(self) -> None:
        now = monotonic()
        if self._waiting:
            quiet = now - max(self._heard, self._asked)
            if quiet > 2 * self._beat:
                self.abort(_lost(f"nothing heard from the server for {quiet:.0f} s"))
                return
        elif now - self._heard >= self._beat / 2:
            self._write(pack(("PING",)), None)
        self._beat_timer = self._loop.call_later(self._beat / 2, self._on_beat)

    def _stop(self, error: ConnectionLost) -> None:
        if self.lost is not None:
            return
        self.lost = error
        if self._beat_timer is not None:
            self._beat_timer.cancel()
        self.resume_writing()
        waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            future = waiter.future if isinstance(waiter, _Batch) else waiter
            if future is not None and not future.done():
                future.set_exception(_again(error))
        if self.on_lost is not None:
            self.on_lost(error)


class _Batch:
    """Replies to commands that were sent together."""

    __slots__ = ("future", "left", "replies")

    def __init__(self, future: asyncio.Future[list[Any]], count: int) -> None:
        self.future = future
        self.left = count
        self.replies: list[Any] = []

    def add(self, reply: Any) -> None:
        self.replies.append(reply)
        self.left -= 1
        if not self.left and not self.future.done():
            self.future.set_result(self.replies)


def _misunderstood(data: bytes, error: hiredis.HiredisError) -> str:
    if data.startswith(b"HTTP/"):
        return "the server speaks HTTP, not Redis"
    return f"the server sent what is no reply of a Redis: {error}"


def _lost(text: str) -> ConnectionLost:
    return ConnectionLost(text, broker="redis")


def _again(error: ConnectionLost) -> ConnectionLost:
    """The same for one more caller: raised again and again, one object would grow."""
    return ConnectionLost(error.message, broker=error.broker)
