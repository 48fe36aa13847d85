"""Another process on the same prefix: a short program that says what it does, line by line."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]

OPENING = """
import asyncio, sys, time
from queuecraft.drivers.base import Outgoing, Queue
from queuecraft.drivers.redis import drivers
from queuecraft.drivers.target import Target

def say(*words):
    print(*words, flush=True)

def heard():
    return sys.stdin.readline().strip()

async def main(driver):
    await driver.open()
"""
ENDING = """
asyncio.run(main(drivers(Target(sys.argv[1]))[0]))
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


@contextmanager
def neighbour(url: str, program: str) -> Generator[Neighbour]:
    """Run the body of `async def main(driver)` in a process of its own."""
    body = textwrap.indent(textwrap.dedent(program), "    ")
    with subprocess.Popen(
        [sys.executable, "-c", OPENING + body + ENDING, url],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Neighbour(process)
        finally:
            process.kill()
