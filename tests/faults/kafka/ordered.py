"""A child that handles jobs in the order of their key until SIGTERM."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from queuecraft import Queue, QueueCraft
from tests.faults.child import run
from tests.faults.job import QUEUE, RETRY, Hands, Job, job
from tests.faults.page import Page
from tests.faults.worker import WorkerOptions


async def main(options: WorkerOptions, page: Page) -> None:
    hands = Hands(Path(options.folder), page, pace=options.pace)
    qc = QueueCraft(options.url, reconnect_delay=0.05, reconnect_attempts=None)
    worker = qc.worker(
        Queue(QUEUE, Job),
        retry=RETRY,
        ordering="key",
        concurrency=options.concurrency,
        prefetch=options.prefetch,
    )
    worker.on(job, hands.handle)
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
