"""The line between a supervisor and one of its children: what each tells the other."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Literal, TypeAlias

import msgspec

LONGEST = 1024 * 1024  # bytes of one report; the list of workers is in it


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A child has imported its application and may run it."""

    broker: str
    workers: dict[str, tuple[str, ...]]
    shutdown_timeout: float


class State(msgspec.Struct, frozen=True, tag="state"):
    """How a child is, told again and again while its loop turns."""

    started: bool
    healthy: bool


Report: TypeAlias = Hello | State
Word: TypeAlias = Literal["stop", "force"]

_reports = msgspec.json.Decoder(Report)
_encode = msgspec.json.Encoder().encode


class ChildEnd:
    """The end a child holds. When the other end is gone, so is the supervisor."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, fd: int) -> ChildEnd:
        """From the descriptor that the supervisor passed on."""
        return cls(*await asyncio.open_unix_connection(sock=socket.socket(fileno=fd)))

    def tell(self, report: Report) -> None:
        """Tell the supervisor; one that is gone is told nothing."""
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.write(_encode(report) + b"\n")

    async def words(self) -> AsyncIterator[str]:
        """What the supervisor wants, until it is gone."""
        with contextlib.suppress(OSError):
            async for line in self._reader:
                yield line.decode(errors="replace").strip()

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


class SupervisorEnd:
    """The end a supervisor holds."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, end: socket.socket) -> SupervisorEnd:
        """From one of a pair of sockets."""
        return cls(*await asyncio.open_unix_connection(sock=end, limit=LONGEST))

    def tell(self, word: Word) -> None:
        """Tell the child; one that is gone is told nothing."""
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.write(f"{word}\n".encode())

    async def reports(self) -> AsyncIterator[Report]:
        """What the child says, until it is gone; what makes no sense is left out."""
        with contextlib.suppress(OSError, ValueError):  # the latter: a line without an end
            async for line in self._reader:
                with contextlib.suppress(msgspec.MsgspecError):
                    yield _reports.decode(line)

    def close(self) -> None:
        """Hang up."""
        self._writer.close()
