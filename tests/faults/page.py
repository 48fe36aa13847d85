"""What one process writes down of what it does, so that no `kill -9` can leave half a line."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

What: TypeAlias = Literal[
    "ready",  # the process does what it was started for
    "publishing",
    "published",  # publish() has returned
    "refused",  # publish() has raised; `reason` is the outcome
    "started",  # a handler was called
    "handled",
    "failed",
    "left",  # a handler was cancelled
    "cut",  # the connection was lost
    "rejoined",  # and found again
    "killing",  # the test is about to kill `victim`: until now it lived
    "died",  # `victim` was found dead, by its own hand
    "stopping",  # the test is about to stop `victim`, which keeps the order of keys
    "freezing",  # the test is about to stop `victim` for a while
    "dead",  # seen in the dead-letter queue
    "redriving",  # from now on dead letters are sent back, with a clean slate of attempts
]


class Line(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Something that happened. The clock is the same for all processes of a machine."""

    at: int
    pid: int
    what: What
    id: str = ""
    temper: str = ""
    attempt: int = 0
    redeliveries: int = 0
    reason: str = ""
    text: str = ""
    victim: int = 0
    allowed: int = 0  # duplicates that a death or a cut may cost


LENGTH: Final = 256  # of every line: a divisor of the size of a page of memory
LONGEST_TEXT: Final = 100


class Page:
    """The lines of this process. Each is one write to a file that is only ever appended to: it is
    there whole or not at all, and stays when the process dies the moment after.

    A kill can end a write where one page of memory ends and the next begins. No line is written
    across that border, because all are of the same length.
    """

    def __init__(self, folder: Path) -> None:
        self._pid = os.getpid()
        self._file = os.open(
            folder / f"{self._pid}.page", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        )

    def write(self, what: What, id: str = "", **more: Any) -> None:
        line = Line(time.monotonic_ns(), self._pid, what, id, **more)
        data = msgspec.json.encode(line).ljust(LENGTH - 1) + b"\n"
        assert len(data) == LENGTH, f"too long: {data!r}"
        written = os.write(self._file, data)
        assert written == LENGTH, f"{written} of {LENGTH} bytes were written"

    def write_refused(self, id: str, outcome: str, text: str) -> None:
        """That a publish was refused, and why: as much of it as there is room for, from its end."""
        plain = text.encode("ascii", "replace").decode().replace('"', "'").replace("\\", "/")
        self.write("refused", id, reason=outcome, text=plain[-LONGEST_TEXT:])

    def close(self) -> None:
        os.close(self._file)


def read(folder: Path) -> list[Line]:
    """All lines of all processes, in the order of time."""
    lines: list[Line] = []
    for page in folder.glob("*.page"):
        data = page.read_bytes()
        assert len(data) % LENGTH == 0, f"{page.name} ends in the middle of a line"
        lines += msgspec.json.decode(b"[" + b",".join(data.splitlines()) + b"]", type=list[Line])
    return sorted(lines, key=lambda line: line.at)
