"""A channel: questions and answers, one after the other, until somebody closes it."""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import Final, TypeVar

from pamqp import commands
from pamqp.base import Frame

from queuecraft.drivers.base import ConnectionLost
from queuecraft.drivers.rabbitmq.fields import Malformed
from queuecraft.drivers.rabbitmq.frames import METHOD, START, method, read_method
from queuecraft.drivers.rabbitmq.wire import Closed, Wire

A = TypeVar("A", bound=Frame)

_CODE: Final = Struct(">I")
_CLOSE: Final = _CODE.pack(commands.Channel.Close.index)
_CLOSE_OK: Final = _CODE.pack(commands.Channel.CloseOk.index)


class Channel:
    """A channel that only asks. Those that publish or consume add to it what they hear."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.lost = wire.lost
        self.number = wire.join(self)
        self._turn = asyncio.Lock()
        self._waiting: asyncio.Future[Frame] | None = None
        self._ending: Ending | None = None

    async def open(self) -> None:
        """Begin."""
        await self.ask(commands.Channel.Open(), commands.Channel.OpenOk)

    async def close(self) -> None:
        """End; what was delivered and not acked goes back."""
        self._end(ConnectionLost("the channel is closed", broker="rabbitmq"))
        if self._ending is not None:
            await asyncio.shield(self._ending.done)

    async def ask(self, command: Frame, answer: type[A]) -> A:
        """Say something and wait for what the broker says to it. Raises `Closed` if it closes the
        channel instead: that is how a broker refuses. Cancelled, it closes the channel: the answer
        is still to come, and would be taken for the answer to the next question."""
        said = method(self.number, command)
        async with self._turn:
            if self.lost is not None:
                raise self.lost.with_traceback(None)
            self._waiting = asyncio.get_running_loop().create_future()
            self.wire.write(said)
            try:
                got = await self._waiting
            except asyncio.CancelledError:
                self._end(
                    ConnectionLost("the channel was given up while asking", broker="rabbitmq")
                )
                raise
            finally:
                self._waiting = None
        if not isinstance(got, answer):
            error = ConnectionLost(f"the broker answered {got.name}", broker="rabbitmq")
            self._end(error)
            raise error
        return got

    # -- what the connection calls -------------------------------------------------------------

    def on_method(self, payload: bytes) -> None:
        """Something was said on this channel."""
        if len(payload) < 4:
            raise Malformed("a method without a name")
        (code,) = _CODE.unpack_from(payload)
        if not self.hear(code, payload):
            self._on_command(read_method(START.pack(METHOD, 1, len(payload)) + payload + b"\xce"))

    def hear(self, code: int, payload: bytes) -> bool:
        """What is heard too often to be left to pamqp; False for everything else."""
        return False

    def on_header(self, payload: bytes) -> None:
        """What a message says about itself."""

    def on_body(self, payload: bytes) -> None:
        """A piece of a message."""

    def on_lost(self, error: ConnectionLost) -> None:
        """There is no such channel any more."""
        if self.lost is None:
            self.lost = error
            if self._waiting is not None and not self._waiting.done():
                self._waiting.set_exception(error)

    def on_cancel(self) -> None:
        """The broker has ended a consumer: its queue is gone, or it took too long."""

    def _end(self, error: ConnectionLost) -> None:
        if self.lost is None:
            self.wire.write(method(self.number, commands.Channel.Close(200, "", 0, 0)))
            self._ending = Ending(self.wire, self.number)
            self.on_lost(error)

    def _on_command(self, command: Frame) -> None:
        if isinstance(command, commands.Channel.Close):
            self.wire.write(method(self.number, commands.Channel.CloseOk()))
            self.wire.leave(self.number)
            text = f"the broker closed the channel: {command.reply_text} ({command.reply_code})"
            self.on_lost(Closed(text, code=command.reply_code or 0))
        elif isinstance(command, commands.Channel.Flow):
            self.wire.write(method(self.number, commands.Channel.FlowOk(command.active)))
        elif isinstance(command, commands.Basic.Cancel):
            self.on_cancel()
        elif isinstance(command, commands.Channel.CloseOk):
            pass  # for one of the same number before, which both sides closed at once
        elif self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(command)


class Ending:
    """What is left of a channel that we have closed. Its number is free when the broker agrees, not
    before: a new channel would hear what was meant for the old one."""

    def __init__(self, wire: Wire, number: int) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wire = wire
        self._number = number
        wire.hand_over(number, self)

    def on_method(self, payload: bytes) -> None:
        """Everything but the end comes too late."""
        if payload[:4] == _CLOSE:  # both at the same time, and ours may go unanswered
            self._wire.write(method(self._number, commands.Channel.CloseOk()))
        elif payload[:4] != _CLOSE_OK:
            return
        self._wire.leave(self._number)
        self.done.set_result(None)

    def on_header(self, payload: bytes) -> None:
        """Too late."""

    def on_body(self, payload: bytes) -> None:
        """Too late."""

    def on_lost(self, error: ConnectionLost) -> None:
        """That is an end as well."""
        self.done.set_result(None)
