"""A child that handles jobs until SIGTERM."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from queuecraft import QueueCraft
from tests.faults.child import Options, run, watch
from tests.faults.job import Hands, worker_of
from tests.faults.page import Page


class WorkerOptions(Options, kw_only=True):
    concurrency: int = 4
    prefetch: int = 8
    batch_size: int | None = None  # a handler of lists
    batch_wait: float = 0.0
    max_redeliveries: int = 1000
    pace: float = 0.004  # seconds a handler takes, at most
    stop_early: bool = False  # as soon as there is something in its hands

    @property
    def allowed(self) -> int:
        """Jobs held at any moment, at most."""
        return self.prefetch


class LastWords(Hands):
    """Stops its own worker from the first job on: what is not begun is given back."""

    def __init__(self, folder: Path, page: Page, stopping: asyncio.Event) -> None:
        super().__init__(folder, page)
        self._stopping = stopping

    async def _work(self, temper: str, attempt: int) -> None:
        self._stopping.set()
        await super()._work(temper, attempt)


async def main(options: WorkerOptions, page: Page) -> None:
    folder = Path(options.folder)
    stopping = asyncio.Event()
    early = options.stop_early
    hands = LastWords(folder, page, stopping) if early else Hands(folder, page, pace=options.pace)
    qc = QueueCraft(
        options.url,
        heartbeat=options.heartbeat,
        reconnect_delay=0.05,
        reconnect_attempts=None,
    )
    watch(qc, options, page)
    worker = worker_of(
        qc,
        hands,
        concurrency=options.concurrency,
        prefetch=options.prefetch,
        batch_size=options.batch_size,
        batch_wait=options.batch_wait,
        max_redeliveries=options.max_redeliveries,
        arguments=options.arguments,
    )
    async with qc:
        await worker.start()
        working = asyncio.ensure_future(stopping.wait() if early else worker.run())
        await asyncio.sleep(0)  # it hears signals from now on
        page.write("ready")
        await working


def begin(argument: str) -> None:
    run(WorkerOptions, main, argument)


if __name__ == "__main__":
    begin(sys.argv[1])
