"""A part of a measurement that runs in another process, and the talk with it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from benchmarks.harness import RunFailed
from benchmarks.part import Task, Told

PATIENCE = 5.0  # seconds to leave in peace
TAIL = 300  # characters of its last words


class Child:
    """What is said to it, and heard from it."""

    def __init__(self, task: Task, process: asyncio.subprocess.Process) -> None:
        self.task = task
        self.process = process

    async def hear(self, word: str) -> Told:
        """Wait for this word; another, or none, is a failure."""
        stdout = self.process.stdout
        assert stdout is not None
        while line := await stdout.readline():
            if not line.startswith(b"{"):
                continue  # some contenders print
            told = msgspec.json.decode(line, type=Told)
            if told.word == word:
                return told
        stderr = self.process.stderr
        assert stderr is not None
        said = (await stderr.read()).decode(errors="replace").strip().splitlines()
        last = said[-1][-TAIL:] if said else "it said nothing"
        raise RunFailed(f"{self.task.entry}: the {self.task.role} ended early: {last}")

    def say(self) -> None:
        """Let it go on."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")


@asynccontextmanager
async def child(**what: Any) -> AsyncGenerator[Child]:
    """Start it; when the block is left it is given a moment to leave, and is then killed."""
    task = Task(**what)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "ignore", "-m", "benchmarks.part"),
        msgspec.json.encode(task).decode(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )
    try:
        yield Child(task, process)
        with suppress(TimeoutError):
            await asyncio.wait_for(_drained(process), PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()
            await _drained(process)


async def _drained(process: asyncio.subprocess.Process) -> None:
    """A process whose pipe is full cannot end."""
    if process.stdin is not None and not process.stdin.is_closing():
        process.stdin.close()
    await process.communicate()
