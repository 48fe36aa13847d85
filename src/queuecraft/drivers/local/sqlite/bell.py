"""Waking consumers in other processes: a datagram to each, and a way to see who is gone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

MOST = 256  # datagrams read in one turn of the loop
DEAF = "-"  # starts the name of a session that cannot be rung
FULL = 10  # datagrams a socket holds where the system is set to the least


class Bell:
    """A socket in a folder beside the file, whose name is that of the session.

    Ringing never waits: a full buffer means that the other has enough to wake up for. A socket
    nobody listens to any more belongs to a process that has died.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._directory = -1
        self._socket: socket.socket | None = None
        self._heard: Callable[[set[int] | None], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._name = ""

    def open(self) -> None:
        """Be able to ring."""
        if not hasattr(os, "O_PATH"):  # without it, paths are too short for most folders
            return
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._directory = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)

    def listen(self, heard: Callable[[set[int] | None], None]) -> str:
        """Be woken: `heard` is called with the numbers of queues, or with None when it may be any.
        Returns the name to ring; where sockets cannot be made, that of a deaf one, for whom the
        slow poll has to do."""
        if not self._name:
            name = os.urandom(8).hex()
            try:
                if self._socket is None:
                    return f"{DEAF}{name}"
                self._socket.bind(self._address(name))
            except OSError:
                return f"{DEAF}{name}"
            self._name = name
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._socket, self._read)
        self._heard = heard
        return self._name

    def ring(self, name: str, queue: int | None = None) -> bool:
        """Wake a session up for a queue; False when nobody is there any more."""
        if self._socket is None or name.startswith(DEAF):
            return True
        message = b"" if queue is None else queue.to_bytes(2, "big")
        try:
            self._socket.sendto(message, self._address(name))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # its buffer is full, or we are out of something: the poll finds out
            pass
        return True

    def clear(self, name: str) -> None:
        """Remove what a dead session has left."""
        with contextlib.suppress(OSError):
            (self._folder / name).unlink()

    def close(self) -> None:
        """Ring and listen no more."""
        if self._loop is not None and self._socket is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
        self._loop = self._heard = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._name:
            self.clear(self._name)
            self._name = ""
        if self._directory >= 0:
            os.close(self._directory)
            self._directory = -1

    def _address(self, name: str) -> str:
        # A socket's path has room for about a hundred bytes; this one is short wherever the
        # folder is.
        return f"/proc/self/fd/{self._directory}/{name}"

    def _read(self) -> None:
        numbers: set[int] = set()
        count = 0
        while count < MOST:
            try:
                assert self._socket is not None
                message = self._socket.recv(16)
            except OSError:
                break
            count += 1
            if len(message) == 2:
                numbers.add(int.from_bytes(message, "big"))
        if self._heard is not None and (numbers or count >= FULL):
            self._heard(numbers if count < FULL else None)  # who knows what did not get in
