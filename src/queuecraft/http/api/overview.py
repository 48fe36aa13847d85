"""`/api/overview`: everything at a glance."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

from fastapi import APIRouter
from starlette.requests import Request

from queuecraft.admin.overview import Overview, Point, Word
from queuecraft.http.access import Role
from queuecraft.http.api.desk import Desk
from queuecraft.http.api.jobs import JobReport
from queuecraft.http.api.routes import Routes, Told
from queuecraft.http.api.rows import (
    CircuitLine,
    GroupLine,
    HappeningLine,
    Number,
    Past,
    WorkerLine,
    past,
)

GROUPS = 20
HAPPENINGS = 50
RECENT = timedelta(minutes=1)


class NumberReport(Told):
    """A number and its past, oldest first."""

    now: Number
    history: Past


class NumbersReport(Told):
    """The four numbers."""

    in_per_second: NumberReport
    handled_per_second: NumberReport
    failure_ratio: NumberReport
    oldest_age: NumberReport


class OverviewReport(Told):
    """The broker, its workers and what failed, at one moment."""

    at: datetime
    status: Word
    reasons: list[str]
    broker: str
    url: str
    state: str
    blocked: str | None
    last_error: str | None
    asked_in: Number
    numbers: NumbersReport
    queue_count: int
    lacking: str | None
    workers: list[WorkerLine] | None
    circuits: list[CircuitLine]
    groups: list[GroupLine]
    looked_at: int
    dead: int
    happenings: list[HappeningLine]
    jobs: list[JobReport]
    masked: bool
    role: Literal["operator", "reader"]
    reports: bool


class OverviewPages:
    """The overview, as a page."""

    def __init__(self, router: APIRouter, desk: Desk, *, reports: bool) -> None:
        self._desk = desk
        self._reports = reports
        Routes(router, desk.access, "overview").see(
            "/api/overview",
            self.show,
            "get_overview",
            "Everything at a glance",
            model=OverviewReport,
        )

    async def show(self, request: Request) -> OverviewReport:
        """From the last look at the broker, a few seconds old at most."""
        return self.report(await self._desk.lookout.overview(), self._desk.access.role(request))

    def report(self, seen: Overview, role: Role) -> OverviewReport:
        """The same for a role."""
        numbers = seen.numbers
        workers = seen.workers
        return OverviewReport(
            at=seen.at,
            status=seen.status,
            reasons=list(seen.reasons),
            broker=seen.broker,
            url=seen.url,
            state=seen.state,
            blocked=seen.blocked,
            last_error=seen.last_error,
            asked_in=seen.asked_in,
            numbers=NumbersReport(
                in_per_second=_number(numbers.in_per_second),
                handled_per_second=_number(numbers.handled_per_second),
                failure_ratio=_number(numbers.failure_ratio),
                oldest_age=_number(numbers.oldest_age),
            ),
            queue_count=sum(not row.holds_dead_letters for row in seen.queues),
            lacking=seen.lacking,
            workers=None
            if workers is None
            else [WorkerLine.model_validate(each) for each in workers],
            circuits=[CircuitLine.model_validate(each) for each in seen.circuits],
            groups=[GroupLine.model_validate(each) for each in seen.groups[:GROUPS]],
            looked_at=seen.looked_at,
            dead=seen.dead,
            happenings=[HappeningLine.model_validate(e) for e in seen.happenings[:HAPPENINGS]],
            jobs=[JobReport.of(each) for each in self._desk.jobs.list(RECENT)],
            masked=bool(self._desk.masks),
            role="operator" if role >= Role.OPERATOR else "reader",
            reports=self._reports,
        )


def _number(points: tuple[Point, ...]) -> NumberReport:
    history = past(points)
    return NumberReport(now=history[-1][1] if history else None, history=history)
