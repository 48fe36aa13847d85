"""A file of the journal while it is written."""

from __future__ import annotations

import fcntl
import os
import re
import socket
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from queuecraft.failpoints import failpoint

TRIES: Final = 3

VECTOR: Final = 512
"""Pieces in one call; Linux allows twice as many."""


class Spool:
    """Lines on their way to the disk: `NAME.open`, and `NAME.jsonl` once it is complete.

    Names sort by time and are unique to host, process and file. For as long as its writer lives,
    a file that is open is locked with `flock`. So a `NAME.open` whose lock can be had is an
    orphan: whoever gets the lock may take it over, while holding it, and read it up to the last
    complete line. A writer looks, once it has the lock, whether the file is still where it was
    made: somebody may have been quicker.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.size = 0
        self.rows = 0
        self.spoilt = False
        """Whether its end is not what it should be, so that nothing more can be written to it."""
        self._opened_at = time.monotonic()
        self._descriptor = descriptor

    @classmethod
    def open(cls, folder: Path, name: str) -> Spool:
        """A new file, locked. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(TRIES):
            path = folder / f"{name}-{number}.open"
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
            descriptor = os.open(path, flags, 0o640)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(path, descriptor):
                    return cls(path, descriptor)
            except BlockingIOError:
                pass
            except BaseException:
                os.close(descriptor)
                path.unlink(missing_ok=True)
                raise
            os.close(descriptor)
        raise BlockingIOError(f"others take every new file in {folder} away")

    @property
    def age(self) -> float:
        """Seconds since it was opened."""
        return time.monotonic() - self._opened_at

    @property
    def gone(self) -> bool:
        """Whether somebody has removed it, or the folder."""
        return os.fstat(self._descriptor).st_nlink == 0

    def write(self, pieces: Sequence[bytes], rows: int) -> None:
        """Append lines; all of them or, raising OSError, none."""
        size = 0
        try:
            for start in range(0, len(pieces), VECTOR):
                size += self._write(pieces[start : start + VECTOR])
        except OSError:
            self.spoilt = True  # half a line would spoil the next
            os.ftruncate(self._descriptor, self.size)
            self.spoilt = False
            raise
        self.size += size
        self.rows += rows

    def _write(self, pieces: Sequence[bytes]) -> int:
        done = os.writev(self._descriptor, pieces)
        size = sum(map(len, pieces))
        if done < size:
            rest = memoryview(b"".join(pieces))[done:]
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        return size

    def close(self) -> None:
        """Let others read it: synced first, then renamed. Raises OSError."""
        try:
            if self.size == 0:
                self.path.unlink()
                return
            os.fsync(self._descriptor)
            failpoint("journal.before_rename")
            self.path.rename(self.path.with_suffix(".jsonl"))
            failpoint("journal.after_rename")
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Leave it as it is: an orphan, unless another process has it from us by a fork."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def name_of(start: str, number: int) -> str:
    """The name of a file: when, where, and which one.

    >>> name_of("1f0c", 7).endswith("-1f0c-000007")
    True
    """
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    host = re.sub(r"[^A-Za-z0-9]+", "-", socket.gethostname())[:40]
    return f"{now}-{host}-{os.getpid()}-{start}-{number:06d}"
