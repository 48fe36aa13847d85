"""A queue in a file that fills up and is emptied again: does anything depend on how full it is?

    python -m benchmarks.backlog --messages 10000000 --svg docs/images/backlog.svg

Orders are published in batches of 500 with no worker running, then handled by one worker. The
rate of each stretch is measured against how many messages wait, with the memory of the process.
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated

import msgspec
import typer
from rich.progress import Progress

from benchmarks.order import Order, orders
from benchmarks.plot import Line, chart
from queuecraft import Event, QueueCraft

BATCH = 500

order_placed = Event("order.placed", Order)


@dataclass(frozen=True, slots=True)
class Stretch:
    """One part of the way."""

    phase: str
    waiting: int
    rate: float
    memory_mb: float
    file_mb: float


def memory_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 1e6


async def fill_and_empty(
    path: Path, messages: int, step: int, on_stretch: Callable[[Stretch], None]
) -> None:
    qc = QueueCraft(path.as_uri().replace("file:", "local:"))
    worker = qc.worker("billing", prefetch=BATCH)
    handled = 0
    moments: list[float] = []
    done = asyncio.Event()

    @worker.on(order_placed)
    async def charge(_: Order) -> None:
        nonlocal handled
        handled += 1
        if handled % step == 0:
            moments.append(perf_counter())
            report("consume", messages - handled, moments[-1] - moments[-2])
        if handled == messages:
            done.set()

    def report(phase: str, waiting: int, seconds: float) -> None:
        size = sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))
        on_stretch(Stretch(phase, waiting, step / seconds, memory_mb(), size / 1e6))

    batch = orders(Order, BATCH)
    async with qc:
        for begun in range(0, messages, step):
            started = perf_counter()
            for _ in range(0, step, BATCH):
                await qc.publish_many(order_placed, batch)
            report("publish", begun + step, perf_counter() - started)
        moments.append(perf_counter())
        await worker.start()
        await done.wait()


def main(
    messages: Annotated[int, typer.Option(min=BATCH, help="How many pile up.")] = 10_000_000,
    steps: Annotated[int, typer.Option(min=2, help="How many stretches each way.")] = 40,
    svg: Annotated[Path | None, typer.Option(help="Draw the rates to this file.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write every figure to this file.")] = None,
) -> None:
    """Fill a queue, empty it, and say whether the rates stayed the same."""
    step = max(BATCH, messages // steps // BATCH * BATCH)
    messages = messages // step * step
    stretches: list[Stretch] = []
    with (
        TemporaryDirectory(prefix="queuecraft-backlog-") as folder,
        Progress(disable=not os.isatty(1)) as progress,
    ):
        bar = progress.add_task("", total=2 * messages)

        def note(stretch: Stretch) -> None:
            stretches.append(stretch)
            progress.update(bar, advance=step, description=stretch.phase)

        asyncio.run(fill_and_empty(Path(folder, "queue.db"), messages, step, note))
    for phase in ("publish", "consume"):
        rates = [each.rate for each in stretches if each.phase == phase]
        quarter = max(1, len(rates) // 4)
        first, last = sorted(rates[:quarter]), sorted(rates[-quarter:])
        ratio = last[len(last) // 2] / first[len(first) // 2]
        print(
            f"{phase}: {min(rates):,.0f}–{max(rates):,.0f} msg/s; last quarter {ratio:.2f}× first"
        )
    print(f"memory at most {max(each.memory_mb for each in stretches):,.0f} MB,", end=" ")
    print(f"file at most {max(each.file_mb for each in stretches):,.0f} MB")
    if svg:
        lines = [
            Line(phase, [(each.waiting, each.rate) for each in stretches if each.phase == phase])
            for phase in ("publish", "consume")
        ]
        svg.parent.mkdir(parents=True, exist_ok=True)
        title = "A queue in a file, filling up and emptying again"
        svg.write_text(chart(title, lines, x="messages waiting", y="messages a second"))
    if json:
        json.write_bytes(msgspec.json.encode([asdict(each) for each in stretches]))


if __name__ == "__main__":
    typer.run(main)
