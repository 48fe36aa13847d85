"""How long a message takes from one process to a handler that sleeps in another.

    python -m benchmarks.wakeup

One process publishes an order every few milliseconds to a queue in a file; a worker in another
process, idle in between, notes when its handler begins. The clock starts before `publish` is
called, so that the time the disk takes is in it.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Annotated

import typer

from queuecraft import Event, QueueCraft

called = Event("wakeup.called", float)


async def work(url: str, messages: int) -> None:
    """In the other process: prints the seconds each message took."""
    qc = QueueCraft(url)
    sleeper = qc.worker("sleeper")
    left = messages
    done = asyncio.Event()

    @sleeper.on(called)
    async def wake(started: float) -> None:
        nonlocal left
        print(monotonic() - started)
        left -= 1
        if not left:
            done.set()

    async with qc:
        await sleeper.start()
        print("ready", flush=True)
        await done.wait()


async def measure(messages: int) -> list[float]:
    with TemporaryDirectory(prefix="queuecraft-wakeup-") as folder:
        url = Path(folder, "queue.db").as_uri().replace("file:", "local:")
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.wakeup", "--worker", url),
            *("--messages", str(messages)),
            stdout=asyncio.subprocess.PIPE,
        )
        assert child.stdout is not None
        await child.stdout.readline()
        async with QueueCraft(url) as qc:
            for _ in range(messages):
                await asyncio.sleep(random.uniform(0.002, 0.008))
                await qc.publish(called, monotonic())
        out, _ = await child.communicate()
    return [float(line) for line in out.split()]


def main(
    messages: Annotated[int, typer.Option(min=10, help="How many to send.")] = 2000,
    worker: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Print the middle and the worst of it."""
    if worker is not None:
        asyncio.run(work(worker, messages))
        return
    taken = asyncio.run(measure(messages))
    cuts = statistics.quantiles(taken, n=1000)
    shown = {"p50": cuts[499], "p95": cuts[949], "p99": cuts[989], "p99.9": cuts[998]}
    print("  ".join(f"{name} {1000 * seconds:.2f} ms" for name, seconds in shown.items()))


if __name__ == "__main__":
    typer.run(main)
