"""What takes a while: redrives, moves and deletions that go on after they were asked for."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

from queuecraft.http.access import Who
from queuecraft.http.audit import Audit, Deed
from queuecraft.http.refusal import Refusal
from queuecraft.model.errors import QueueError
from queuecraft.observers.log import printable
from queuecraft.runtime.redrive import Redrive

log = logging.getLogger("queuecraft.http")

AT_ONCE = 4
KEPT = 100  # jobs that have ended
KEPT_FOR = timedelta(minutes=10)
ERRORS = 10

Kind: TypeAlias = Literal["redrive", "move", "delete"]
State: TypeAlias = Literal[
    "running", "waiting-for-canary", "done", "stopped", "cancelled", "failed"
]
Work: TypeAlias = Callable[[Callable[[Redrive], object]], Awaitable[Redrive]]
"""Does it, telling whoever it is given how far it has come."""


@dataclass(slots=True, kw_only=True)
class Job:
    """One of them, and how far it has come."""

    kind: Kind
    queue: str
    by: str
    what: str
    dry_run: bool
    id: str = field(default_factory=lambda: os.urandom(8).hex())
    state: State = "running"
    progress: Redrive = field(default_factory=lambda: Redrive(total=0))
    total: int | None = None
    stopped: str | None = None
    failed: str | None = None
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    ended_at: datetime | None = None

    @property
    def errors(self) -> list[str]:
        """The first of what went wrong, printable."""
        said = [] if self.failed is None else [self.failed]
        return [printable(each[:500]) for each in (*said, *self.progress.errors)][:ERRORS]

    @property
    def outcome(self) -> str:
        """How it ended, in a few words.

        >>> job = Job(kind="move", queue="a", by="", what="", dry_run=False, state="done")
        >>> job.progress = Redrive(total=3, seen=3, moved=2, kept=1)
        >>> job.outcome
        'done: 2 moved, 1 kept, 0 refused'
        """
        done, counted = self.progress, {"delete": "deleted"}.get(self.kind, "moved")
        text = f"{self.state}: {done.moved} {counted}, {done.kept} kept, {done.refused} refused"
        why = self.failed or self.stopped
        return text if why is None else f"{text}; {why}"

    def hear(self, progress: Redrive) -> None:
        """It has come so far."""
        self.progress = progress
        self.total = progress.total
        self.stopped = progress.stopped
        self.state = "waiting-for-canary" if progress.waiting else "running"


class Jobs:
    """All of them: one for each queue, four at once. Those that have ended are kept for ten
    minutes. None outlives the service, and what one has not moved yet stays in its place."""

    def __init__(self, audit: Audit, changed: Callable[[], object] = lambda: None) -> None:
        self._audit = audit
        self._changed = changed
        self._jobs: dict[str, Job] = {}
        self._works: dict[str, asyncio.Future[Redrive]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._claimed: set[str] = set()
        self._closed = False

    def list(self, since: timedelta = KEPT_FOR) -> Sequence[Job]:
        """Those that run or have ended since, the last begun first."""
        self._forget()
        then = datetime.now(UTC) - since
        jobs = [each for each in self._jobs.values() if (each.ended_at or then) >= then]
        return jobs[::-1]

    def find(self, id: str) -> Job:
        """One of them."""
        self._forget()
        job = self._jobs.get(id)
        if job is None:
            hint = "those that have ended are forgotten after ten minutes; GET /api/jobs lists them"
            raise Refusal(404, "NotFound", "there is no such job", hint)
        return job

    async def start(self, job: Job, who: Who, work: Work) -> Job:
        """Begin a job, or refuse to."""
        if self._closed:
            raise _stopping()
        if job.queue in self._claimed:
            raise Refusal(
                409,
                "Busy",
                f"a job works on the queue {job.queue!r} already",
                "wait until it has ended, or cancel it with DELETE /api/jobs/{id}",
            )
        if len(self._claimed) >= AT_ONCE:
            later = {"Retry-After": "5"}
            hint = "wait until one has ended"
            raise Refusal(503, "Busy", f"{AT_ONCE} jobs run already", hint, later)
        self._claimed.add(job.queue)  # before anything is awaited
        try:
            deed = await self._audit.begin(who, job.kind, job.queue, job.what)
        except BaseException:
            self._claimed.discard(job.queue)
            raise
        if self._closed:  # meanwhile; nobody would wait for it
            self._claimed.discard(job.queue)
            await deed.end("refused: the service is stopping")
            raise _stopping()
        self._jobs[job.id] = job

        def hear(progress: Redrive) -> None:
            job.hear(progress)
            self._changed()

        # Two tasks: one may be cancelled before it has begun, the other sees to the end.
        self._works[job.id] = asyncio.ensure_future(work(hear))
        self._tasks[job.id] = asyncio.ensure_future(self._attend(job, deed))
        self._changed()
        return job

    async def cancel(self, id: str) -> Job:
        """Have one stop, and wait until it has; one that has ended stays as it is."""
        job = self.find(id)
        task = self._tasks.get(id)
        if task is not None:
            self._works[id].cancel()
            await asyncio.wait({task})
        return job

    async def settled(self) -> None:
        """Wait until none runs."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def close(self) -> None:
        """Stop all, and take no more."""
        self._closed = True
        for work in self._works.values():
            work.cancel()
        await self.settled()

    async def _attend(self, job: Job, deed: Deed) -> None:
        work = self._works[job.id]
        try:
            await asyncio.wait({work})
            self._judge(job, work)
            job.ended_at = datetime.now(UTC)
            self._claimed.discard(job.queue)
            self._changed()
            await deed.end(job.outcome)
        finally:
            del self._works[job.id], self._tasks[job.id]

    def _judge(self, job: Job, work: asyncio.Future[Redrive]) -> None:
        if work.cancelled():
            job.state = "cancelled"
            return
        error = work.exception()
        if error is None:
            job.hear(work.result())
            job.state = "done" if job.stopped is None else "stopped"
            return
        job.state = "failed"
        if isinstance(error, QueueError | TimeoutError):
            job.failed = str(error) or type(error).__name__
        else:
            log.error("a job failed: %s", type(error).__name__, exc_info=error)
            job.failed = "this went wrong here; the log of the service tells more"

    def _forget(self) -> None:
        ended = [each for each in self._jobs.values() if each.ended_at is not None]
        then = datetime.now(UTC) - KEPT_FOR
        for index, job in enumerate(ended):
            if index < len(ended) - KEPT or (job.ended_at or then) < then:
                del self._jobs[job.id]


def _stopping() -> Refusal:
    return Refusal(503, "Busy", "the service is stopping", "ask again when it is back")
