"""Another process on the same file: a short program that says what it does, line by line."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

OPENING = """
import asyncio, sys
from pathlib import Path
from queuecraft.drivers.base import Outgoing, Queue
from queuecraft.drivers.local.sqlite import SqliteDriver

def say(*words):
    print(*words, flush=True)

def heard():
    return sys.stdin.readline().strip()

async def main(driver):
"""
ENDING = """
asyncio.run(main(SqliteDriver(Path(sys.argv[1]))))
"""


class Neighbour:
    """A running program."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    async def says(self) -> str:
        """Its next line; empty when it has ended."""
        assert self._process.stdout is not None
        return (await asyncio.to_thread(self._process.stdout.readline)).strip()

    def tell(self, word: str) -> None:
        """Give it a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL: it has no chance to say goodbye."""
        self._process.kill()
        self._process.wait()

    async def ends(self) -> int:
        """Its exit code."""
        return await asyncio.to_thread(self._process.wait)


@contextmanager
def neighbour(path: Path, program: str) -> Generator[Neighbour]:
    """Run the body of `async def main(driver)` in a process of its own."""
    body = textwrap.indent(textwrap.dedent(program), "    ")
    with subprocess.Popen(
        [sys.executable, "-c", OPENING + body + ENDING, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Neighbour(process)
        finally:
            process.kill()
