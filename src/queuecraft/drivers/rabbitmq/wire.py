"""One AMQP connection: bytes cut into frames, frames given to channels, writes gathered."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import Final, Protocol, cast

from pamqp import commands
from pamqp.base import Frame

from queuecraft.drivers.base import ConnectionLost
from queuecraft.drivers.rabbitmq.fields import Malformed
from queuecraft.drivers.rabbitmq.frames import (
    BEAT,
    BODY,
    HEADER,
    HEARTBEAT,
    METHOD,
    START,
    method,
    read_method,
)
from queuecraft.model.printable import printable

FRAME_MAX: Final = 131_072  # bytes of a frame: what RabbitMQ proposes
CHANNEL_MAX: Final = 2047
INTERNAL_ERROR: Final = 541
GOODBYE: Final = 1.0  # seconds to wait for an answer to the last word

log: Final = logging.getLogger("queuecraft")


class Receiver(Protocol):
    """A channel, as the connection knows it. What it is given is the payload of a frame."""

    def on_method(self, payload: bytes) -> None: ...
    def on_header(self, payload: bytes) -> None: ...
    def on_body(self, payload: bytes) -> None: ...
    def on_lost(self, error: ConnectionLost) -> None: ...


class Wire(asyncio.Protocol):
    """Frames to and from a broker. Lost, it tells every channel, and stays lost."""

    def __init__(self) -> None:
        self.lost: ConnectionLost | None = None
        self.blocked: str | None = None
        self.frame_max = FRAME_MAX
        self.channel_max = CHANNEL_MAX
        self._channels: dict[int, Receiver] = {}
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._rest = b""
        self._out: list[bytes] = []
        self._writing = False  # a flush is on its way
        self._full: asyncio.Future[None] | None = None
        self._waiting: asyncio.Future[Frame] | None = None  # for a method of the connection
        self._leaving = False
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._beat = 0.0
        self._beat_timer: asyncio.TimerHandle | None = None
        self._heard = self._wrote = monotonic()

    # -- what channels and the driver call -----------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send, together with whatever else is written in this turn of the loop."""
        if self.lost is not None:
            raise self.lost.with_traceback(None)
        self._out.append(data)
        if not self._writing:
            self._writing = True
            self._loop.call_soon(self._flush)

    def write_command(self, command: Frame) -> None:
        """Say something about the connection that is not answered."""
        self.write(method(0, command))

    async def drained(self) -> None:
        """Wait while the broker takes less than we write."""
        while self._full is not None:
            await asyncio.shield(self._full)
        if self.lost is not None:
            raise self.lost.with_traceback(None)

    def join(self, channel: Receiver) -> int:
        """A free number for a channel."""
        number = next(n for n in range(1, self.channel_max + 2) if n not in self._channels)
        if number > self.channel_max:
            raise ConnectionLost(f"all {self.channel_max} channels are in use", broker="rabbitmq")
        self._channels[number] = channel
        return number

    def hand_over(self, number: int, channel: Receiver) -> None:
        """From now on it is another that hears what comes for this number."""
        self._channels[number] = channel

    def leave(self, number: int) -> None:
        """A channel is closed."""
        self._channels.pop(number, None)

    async def ask(self, command: Frame | None, *answers: type[Frame]) -> Frame:
        """Say something about the connection as a whole, and wait for an answer."""
        if self.lost is not None:
            raise self.lost.with_traceback(None)
        self._waiting = self._loop.create_future()
        if command is not None:
            self.write_command(command)
        try:
            answer = await self._waiting
        finally:
            self._waiting = None
        if not isinstance(answer, answers):
            raise ConnectionLost(f"the broker answered {answer.name}", broker="rabbitmq")
        return answer

    def beat(self, seconds: float) -> None:
        """Send something at least every half of so many seconds, and expect the same."""
        self._beat = seconds
        if seconds > 0:
            self._heard = monotonic()
            self._beat_timer = self._loop.call_later(seconds / 2, self._on_beat)

    async def close(self) -> None:
        """Say goodbye, and wait for the socket to be closed."""
        if self.lost is None and not self._leaving:
            self._leaving = True
            try:
                async with asyncio.timeout(GOODBYE):
                    await self.ask(
                        commands.Connection.Close(200, "", 0, 0), commands.Connection.CloseOk
                    )
            except (ConnectionLost, TimeoutError):
                pass  # it ends either way
            finally:
                self.abort(_lost("closed"))
        await asyncio.shield(self._closed)

    def abort(self, error: ConnectionLost) -> None:
        """Give the connection up."""
        if self.lost is not None:
            return
        self.lost = error
        if self.blocked is not None:  # no other line will say that this is over
            log.warning("rabbitmq took no messages until the connection ended; a new one may go on")
        if self._beat_timer is not None:
            self._beat_timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        else:
            self._closed.set_result(None)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)
        self.resume_writing()
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.on_lost(error)

    # -- what the loop calls -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # that of uvloop is no subclass

    def connection_lost(self, exc: Exception | None) -> None:
        self.abort(
            _lost("the connection was cut" if exc is None else f"the connection broke: {exc}")
        )
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
        if self._rest:
            data = self._rest + data
        at, end, most = 0, len(data), self.frame_max
        unpack, channels = START.unpack_from, self._channels
        try:
            while end - at >= 8:
                kind, number, size = unpack(data, at)
                if size > most:
                    raise Malformed(f"a frame of {size} bytes")
                stop = at + 7 + size
                if stop >= end:
                    break
                if data[stop] != 0xCE:
                    raise Malformed("a frame without its end")
                payload = data[at + 7 : stop]
                at = stop + 1
                if number == 0:
                    self._on_control(kind, payload)
                    if self.lost is not None:
                        return  # closed: nothing after that is for anyone
                    continue
                channel = channels.get(number)
                if channel is None:
                    continue  # for one that is closed by now
                if kind == METHOD:
                    channel.on_method(payload)
                elif kind == HEADER:
                    channel.on_header(payload)
                elif kind == BODY:
                    channel.on_body(payload)
                else:
                    raise Malformed(f"a frame of type {kind}")
        except Malformed as error:
            self.abort(_lost(_misunderstood(data, error)))
            return
        self._rest = data[at:] if at < end else b""

    # -- inside --------------------------------------------------------------------------------

    def _flush(self) -> None:
        self._writing = False
        out, self._out = self._out, []
        if self._transport is not None and self.lost is None and out:
            self._wrote = monotonic()
            self._transport.write(b"".join(out))

    def _on_beat(self) -> None:
        now = monotonic()
        if now - self._heard > 2 * self._beat:
            self.abort(_lost(f"nothing heard from the broker for {now - self._heard:.0f} s"))
            return
        left = self._wrote + self._beat / 2 - now
        if left <= 0:
            self.write(BEAT)
            left = self._beat / 2
        self._beat_timer = self._loop.call_later(left, self._on_beat)

    def _on_control(self, kind: int, payload: bytes) -> None:
        if kind == HEARTBEAT:
            return
        if kind != METHOD:
            raise Malformed(f"a frame of type {kind} for the connection")
        command = read_method(START.pack(METHOD, 0, len(payload)) + payload + b"\xce")
        if isinstance(command, commands.Connection.Close):
            self.write_command(commands.Connection.CloseOk())
            self._flush()
            text = f"the broker closed the connection: {command.reply_text} ({command.reply_code})"
            if command.reply_code == INTERNAL_ERROR:
                text += "; something broke inside it, and its log says what and for which queue"
            self.abort(Closed(text, code=command.reply_code or 0))
        elif isinstance(command, commands.Connection.Blocked):
            self.blocked = command.reason or "blocked"
            log.warning("rabbitmq takes no messages: %s; publishes wait", printable(self.blocked))
        elif isinstance(command, commands.Connection.Unblocked):
            self.blocked = None
            log.warning("rabbitmq takes messages again")
        elif self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(command)


class Closed(ConnectionLost):
    """The broker has closed the connection or the channel, and says why."""

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message, broker="rabbitmq")
        self.code = code


def _misunderstood(data: bytes, error: Malformed) -> str:
    if data.startswith(b"AMQP"):  # how a server refuses the version it was greeted with
        return "the server speaks another version of AMQP, not 0-9-1"
    if data.startswith(b"HTTP/"):
        return "the server speaks HTTP, not AMQP"
    return f"the broker sent what is no AMQP: {error}"


def _lost(text: str) -> ConnectionLost:
    return ConnectionLost(text, broker="rabbitmq")
