"""`/api/jobs`: what is under way, how far it has come, and having it stop."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path
from starlette.requests import Request

from queuecraft.http.api.desk import Desk
from queuecraft.http.api.routes import Routes, Told
from queuecraft.http.jobs import Job, Kind, State


class JobReport(Told):
    """A job, and how far it has come."""

    id: str
    kind: Kind
    queue: str
    by: str
    what: str
    state: State
    total: int | None
    seen: int
    moved: int
    kept: int
    refused: int
    dry_run: bool
    errors: list[str]
    stopped: str | None
    started_at: datetime
    ended_at: datetime | None

    @classmethod
    def of(cls, job: Job) -> JobReport:
        """As it is now."""
        done = job.progress
        return cls(
            id=job.id,
            kind=job.kind,
            queue=job.queue,
            by=job.by,
            what=job.what,
            state=job.state,
            total=job.total,
            seen=done.seen,
            moved=done.moved,
            kept=done.kept,
            refused=done.refused,
            dry_run=job.dry_run,
            errors=job.errors,
            stopped=job.stopped,
            started_at=job.started_at,
            ended_at=job.ended_at,
        )


class JobList(Told):
    """Jobs, the last begun first."""

    jobs: list[JobReport]


class JobPages:
    """Jobs, as pages."""

    def __init__(self, router: APIRouter, desk: Desk) -> None:
        self._desk = desk
        routes = Routes(router, desk.access, "jobs")
        one = "/api/jobs/{id}"
        routes.see("/api/jobs", self.list, "list_jobs", "What is under way", model=JobList)
        routes.see(one, self.show, "get_job", "How far it has come", 404, model=JobReport)
        routes.act(
            "DELETE", one, self.cancel, "cancel_job", "Stop it", 404, status=200, model=JobReport
        )

    async def list(self) -> JobList:
        """Those that run, and those that have ended in the last ten minutes."""
        return JobList(jobs=[JobReport.of(each) for each in self._desk.jobs.list()])

    async def show(self, id: Annotated[str, Path(max_length=100)]) -> JobReport:
        """One of them."""
        return JobReport.of(self._desk.jobs.find(id))

    async def cancel(self, request: Request, id: Annotated[str, Path(max_length=100)]) -> JobReport:
        """What has moved has moved, the rest stays where it was. One that has ended stays as it
        is."""
        job = self._desk.jobs.find(id)
        async with self._desk.deed(request, "cancel", job.queue, job.what):
            return JobReport.of(await self._desk.jobs.cancel(id))
