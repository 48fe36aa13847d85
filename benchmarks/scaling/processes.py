"""Several processes that share one queue: how many messages a second they handle together."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from time import monotonic

import msgspec

from benchmarks.harness import RunFailed
from benchmarks.scaling.load import QUEUE, declare, fill
from queuecraft import QueueCraft

PATIENCE = 90.0
HELD = 1.0  # seconds for what workers hold, where the broker does not tell of it


@asynccontextmanager
async def draining(url: str, seconds: float) -> AsyncGenerator[Process]:
    """One of them; killed if it has not ended when the block is left."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.scaling.drain", url, str(seconds)),
        stdin=PIPE,
        stdout=PIPE,
        limit=1 << 24,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def together(moments: Sequence[Sequence[float]]) -> float:
    """Messages a second while all of them were at work.

    Before the last has begun and after the first has ended, fewer than all share the work; where
    they never worked at the same time, all of it counts.

    >>> together([[0.0, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0]])
    2.5
    """
    busy = [each for each in moments if each]
    begin, end = max(each[0] for each in busy), min(each[-1] for each in busy)
    if end <= begin or len(busy) < len(moments):
        begin, end = min(each[0] for each in busy), max(each[-1] for each in busy)
    inside = sum(begin < moment <= end for each in busy for moment in each)
    shared = sum(moment == begin for each in busy for moment in each) / max(1, len(busy))
    return (inside + shared) / (end - begin)


async def rate(url: str, processes: int, messages: int, seconds: float) -> float:
    """Fill the queue, let so many processes empty it, and say how fast they were."""
    async with QueueCraft(url) as qc, AsyncExitStack() as stack:
        await declare(qc)
        await fill(qc, messages)
        children = [
            await stack.enter_async_context(draining(url, seconds)) for _ in range(processes)
        ]
        for child in children:
            assert child.stdout is not None
            if (await child.stdout.readline()).strip() != b"ready":
                raise RunFailed("a process that should empty the queue did not start")
        for child in children:
            say(child)
        deadline = monotonic() + PATIENCE
        while True:
            found = await qc.admin.inspect(QUEUE)
            if not (found.ready or 0) + (found.in_flight or 0):
                break
            if monotonic() > deadline:
                raise RunFailed(f"{found.ready} messages were left after {PATIENCE:g} s")
            await asyncio.sleep(0.1)
        await asyncio.sleep(HELD)
        for child in children:
            say(child)
        told = [(await child.communicate())[0] for child in children]
    moments = [msgspec.json.decode(each, type=list[float]) for each in told]
    handled = sum(map(len, moments))
    if handled < messages:
        raise RunFailed(f"handled {handled} messages of {messages}")
    return together(moments)


def say(child: Process) -> None:
    assert child.stdin is not None
    child.stdin.write(b"go\n")
