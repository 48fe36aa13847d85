"""A child that publishes jobs until SIGTERM, or until it has published enough."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Final

from queuecraft import PublishError, QueueCraft, QueueError
from tests.faults.child import Options, run, watch
from tests.faults.job import TEMPERS, Hands, Job, job, worker_of
from tests.faults.page import Page

EBB: Final = 0.05  # seconds between looks for it


class PublisherOptions(Options, kw_only=True):
    in_flight: int = 4  # publishes at a time
    batch: int = 0  # jobs in one publish_many; 0: they are published one by one
    jobs: int | None = None
    pace: float = 0.01  # seconds between two publishes, at most
    timeout: float = 30.0
    padding: int = 0  # bytes, so that a disk is full sooner

    @property
    def allowed(self) -> int:
        """Jobs under way at any moment, at most."""
        return self.in_flight * max(1, self.batch)


class Publisher:
    def __init__(self, qc: QueueCraft, options: PublisherOptions, page: Page) -> None:
        self.stopped = False
        self._qc = qc
        self._options = options
        self._page = page
        self._numbers = count()
        self._ebb = Path(options.folder, "ebb")

    async def publish(self) -> None:
        """Publish jobs, one or one batch after the other; none while there is a file `ebb`."""
        options = self._options
        while not self.stopped:
            if self._ebb.exists():
                await asyncio.sleep(EBB)
                continue
            jobs = [self._next() for _ in range(max(1, options.batch))]
            if options.jobs is not None and int(jobs[-1].id.split("-")[1]) >= options.jobs:
                return
            for each in jobs:
                self._page.write("publishing", each.id, temper=each.temper)
            try:
                results = await self._send(jobs)
            except QueueError as error:
                results = [error] * len(jobs)
            for each, result in zip(jobs, results, strict=True):
                if isinstance(result, str):
                    self._page.write("published", each.id)
                else:
                    self._refused(each, result)
            await asyncio.sleep(random.uniform(0, options.pace))

    async def _send(self, jobs: Sequence[Job]) -> Sequence[str | QueueError]:
        headers = {"padding": "x" * self._options.padding}
        if self._options.batch:
            return await self._qc.publish_many(job, jobs, headers=headers, return_exceptions=True)
        return [await self._qc.publish(job, jobs[0], headers=headers)]

    def _refused(self, each: Job, error: QueueError) -> None:
        outcome = error.outcome if isinstance(error, PublishError) else "unknown"
        self._page.write_refused(each.id, outcome, error.message)

    def _next(self) -> Job:
        number = next(self._numbers)
        return Job(f"{os.getpid()}-{number}", TEMPERS[number % len(TEMPERS)])


async def main(options: PublisherOptions, page: Page) -> None:
    qc = QueueCraft(
        options.url,
        publish_timeout=options.timeout,
        heartbeat=options.heartbeat,
        reconnect_delay=0.05,
        reconnect_attempts=None,
    )
    watch(qc, options, page)
    # Whose queue is declared with ours.
    worker_of(qc, Hands(Path(options.folder), page), arguments=options.arguments)
    async with qc:
        publisher = Publisher(qc, options, page)

        def stop() -> None:
            publisher.stopped = True

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
        page.write("ready")
        await asyncio.gather(*(publisher.publish() for _ in range(options.in_flight)))


def begin(argument: str) -> None:
    run(PublisherOptions, main, argument)


if __name__ == "__main__":
    begin(sys.argv[1])
