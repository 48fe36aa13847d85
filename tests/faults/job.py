"""The work that processes give each other: what a job is to meet is its temper."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from queuecraft import BatchFailed, Event, Message, Queue, QueueCraft, Retry, Worker
from tests.faults.page import Page

QUEUE: Final = "jobs"
RETRY: Final = Retry(max_retries=2, initial_delay=0.02, factor=1)
LAST_ATTEMPT: Final = 3
TEMPERS: Final = ("ok", "ok", "ok", "fails once", "ok", "fails twice", "ok", "fails")

ENDS: Final = {"fails": "handler-error", "kills": "crash-loop"}
"""Why jobs of some tempers end as dead letters."""

_FAILURES: Final = {"fails once": 1, "fails twice": 2, "fails": LAST_ATTEMPT, "waits, fails": 1}


@dataclass
class Job:
    id: str
    temper: str = "ok"


job = Event("job", Job)


class Failing(Exception):
    """What the temper of a job asks for."""


class Hands:
    """A handler that writes down what it does.

    A file named `mended` makes jobs succeed that would always fail. Jobs that wait go on once
    there is a file `gate-` with the id of the process.
    """

    def __init__(self, folder: Path, page: Page, *, pace: float = 0.004) -> None:
        self._mended = folder / "mended"
        self._gate = folder / f"gate-{os.getpid()}"
        self._page = page
        self._pace = pace

    async def handle(self, job: Job, message: Message) -> None:
        id, attempt = job.id, message.attempt
        self._page.write("started", id, attempt=attempt, redeliveries=message.redeliveries)
        try:
            await self._work(job.temper, attempt)
        except Failing:
            self._page.write("failed", id, attempt=attempt)
            raise
        except BaseException:
            self._page.write("left", id, attempt=attempt)
            raise
        self._page.write("handled", id, attempt=attempt)

    async def handle_many(self, jobs: list[Job], messages: list[Message[Job]]) -> None:
        """The same for a batch: those fail whose temper it is."""
        pairs = zip(jobs, messages, strict=True)
        ends = await asyncio.gather(
            *(self.handle(job, message) for job, message in pairs), return_exceptions=True
        )
        failed = {at: end for at, end in enumerate(ends) if isinstance(end, Exception)}
        if failed:
            raise BatchFailed(failed)

    async def _work(self, temper: str, attempt: int) -> None:
        await asyncio.sleep(random.uniform(0, self._pace))
        if temper == "kills":
            os.kill(os.getpid(), signal.SIGKILL)
        while temper.startswith("waits") and not self._gate.exists():  # noqa: ASYNC110  others open it
            await asyncio.sleep(0.01)
        if attempt <= _FAILURES.get(temper, 0) and not self._mended.exists():
            raise Failing(f"{temper}, attempt {attempt}")


def worker_of(
    qc: QueueCraft,
    hands: Hands,
    *,
    concurrency: int = 4,
    prefetch: int = 8,
    batch_size: int | None = None,
    batch_wait: float = 0.0,
    max_redeliveries: int = 1000,
    arguments: Mapping[str, str] | None = None,
) -> Worker:
    """The worker of the queue, the same in every process."""
    worker = qc.worker(
        Queue(QUEUE, Job, arguments=arguments or {}),
        retry=RETRY,
        concurrency=concurrency,
        prefetch=prefetch,
        max_redeliveries=max_redeliveries,
    )
    if batch_size is not None:
        return worker.on(job, hands.handle_many, batch_size=batch_size, batch_wait=batch_wait)
    return worker.on(job, hands.handle)
