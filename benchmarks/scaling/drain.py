"""A process that empties a queue beside others, and tells when it handled what.

    python -m benchmarks.scaling.drain URL SECONDS

It says `ready`, begins when it is given a line, ends when it is given another, and prints the
moments at which its handlers ended. `SECONDS` is how long each of them computes.
"""

from __future__ import annotations

import asyncio
import sys
from time import monotonic, thread_time

import msgspec

from benchmarks.scaling.load import QUEUE, Load, sent
from queuecraft import QueueCraft

CONCURRENCY = 8
PREFETCH = 100


def compute(seconds: float) -> None:
    """Use the processor for so long, whoever else wants it."""
    until = thread_time() + seconds
    while thread_time() < until:
        pass


async def main(url: str, seconds: float) -> None:
    qc = QueueCraft(url)
    worker = qc.worker(QUEUE, concurrency=CONCURRENCY, prefetch=PREFETCH)
    moments: list[float] = []

    @worker.on(sent)
    async def take(order: Load) -> None:
        if seconds:
            compute(seconds)
        moments.append(monotonic())

    async with qc:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await worker.start()
        await asyncio.to_thread(sys.stdin.readline)
    print(msgspec.json.encode(moments).decode(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
