"""A child that handles jobs in the order of their key until SIGTERM."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

from queuecraft import Queue, QueueCraft, Worker
from tests.faults.child import run
from tests.faults.job import QUEUE, RETRY, Hands, Job, job
from tests.faults.page import Page
from tests.faults.worker import WorkerOptions


def worker_of(
    qc: QueueCraft,
    hands: Hands,
    *,
    concurrency: int = 4,
    prefetch: int = 8,
    max_redeliveries: int = 1000,
    arguments: Mapping[str, str] | None = None,
) -> Worker:
    """A worker on the queue of jobs that keeps the order of keys."""
    worker = qc.worker(
        Queue(QUEUE, Job, arguments=arguments or {}),
        retry=RETRY,
        ordering="key",
        concurrency=concurrency,
        prefetch=prefetch,
        max_redeliveries=max_redeliveries,
    )
    return worker.on(job, hands.handle)


async def main(options: WorkerOptions, page: Page) -> None:
    hands = Hands(Path(options.folder), page, pace=options.pace)
    qc = QueueCraft(options.url, reconnect_delay=0.05, reconnect_attempts=None)
    worker = worker_of(
        qc,
        hands,
        concurrency=options.concurrency,
        prefetch=options.prefetch,
        max_redeliveries=options.max_redeliveries,
        arguments=options.arguments,
    )
    async with qc:
        await worker.start()
        working = asyncio.ensure_future(worker.run())
        await asyncio.sleep(0)  # it hears signals from now on
        page.write("ready")
        await working


def begin(argument: str) -> None:
    run(WorkerOptions, main, argument)


if __name__ == "__main__":
    begin(sys.argv[1])
