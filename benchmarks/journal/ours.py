"""QueueCraft with its journal and without, in memory and in a file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

from benchmarks.harness import Case, Measurement
from benchmarks.memory.ours import BATCH, in_batches
from benchmarks.order import Order, Tally, WrongCount, orders
from queuecraft import Event, Journal, QueueCraft

LONGER = {"memory": 10, "file": 3}
"""How many times as long as other runs: the journal has to be at its usual work."""

PATIENCE = 2**29
"""Bytes that may wait for a disk that is busy with something else: a row that is dropped costs
too little."""

order_placed = Event("order.placed", Order)


async def run(
    messages: int, *, where: str, journal: bool, seconds: Callable[[], float]
) -> Measurement:
    messages *= LONGER[where]
    tally = Tally(messages)

    async def charge(order: Order) -> None:
        tally.add(order)

    with TemporaryDirectory(prefix="queuecraft-benchmark-") as folder:
        file = Path(folder, "queue.db").as_uri().replace("file:", "local:")
        qc = QueueCraft(
            file if where == "file" else "local://",
            journal=Journal(Path(folder, "lake"), max_buffered=PATIENCE) if journal else None,
        )
        worker = qc.worker("billing", concurrency=1, prefetch=BATCH)
        worker.on(order_placed)(charge)
        payloads = orders(Order, messages)
        async with qc:
            await worker.start()
            started = seconds()
            await in_batches(qc, order_placed, payloads)
            await tally.done.wait()
            took = seconds() - started
            await worker.stop()
        metrics = qc.get_metrics()
    tally.verify(Order)
    if journal and (metrics.journal_written, metrics.journal_dropped) != (2 * messages, 0):
        raise WrongCount(f"the journal has {metrics.journal_written} rows of {2 * messages}")
    return Measurement(messages, took)


def cases(name: str, where: str) -> list[Case]:
    return [
        Case(
            name=f"{name}{', journal' if journal else ''}{unit}",
            group="journal",
            contender="QueueCraft",
            run=partial(run, where=where, journal=journal, seconds=seconds),
        )
        for unit, seconds in (("", perf_counter), (", CPU time", process_time))
        for journal in (False, True)
    ]


CASES = (*cases("in memory", "memory"), *cases("in a file", "file"))
