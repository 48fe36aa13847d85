"""`/api/workers`: who is at work, in whichever process."""

from __future__ import annotations

from fastapi import APIRouter

from queuecraft.http.api.desk import Desk
from queuecraft.http.api.routes import Routes, Told
from queuecraft.http.api.rows import CircuitLine, WorkerLine


class WorkerList(Told):
    """Workers by their signs of life; null where the broker has no place for them."""

    workers: list[WorkerLine] | None
    circuits: list[CircuitLine]


class WorkerPages:
    """Workers, as a page."""

    def __init__(self, router: APIRouter, desk: Desk) -> None:
        self._desk = desk
        Routes(router, desk.access, "workers").see(
            "/api/workers", self.list, "list_workers", "Who is at work", model=WorkerList
        )

    async def list(self) -> WorkerList:
        """Every worker of every process that gave a sign of life."""
        overview = await self._desk.lookout.overview()
        workers = overview.workers
        return WorkerList(
            workers=None
            if workers is None
            else [WorkerLine.model_validate(each) for each in workers],
            circuits=[CircuitLine.model_validate(each) for each in overview.circuits],
        )
