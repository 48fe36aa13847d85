"""`POST /cron/cleanup`: a clock elsewhere has overdue delayed messages cleaned up."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from pydantic import BaseModel
from starlette.requests import Request

from queuecraft.http.access import Role, Who, address_of
from queuecraft.http.api.desk import Desk
from queuecraft.http.refusal import refusals
from queuecraft.http.waiting import WaitingRoom
from queuecraft.model.delayed import CleanupPolicy


class CleanupAnswer(BaseModel):
    """What the cleanup did."""

    cleaned: int
    seconds: float
    size: int
    policy: CleanupPolicy
    refused: int


class CronPages:
    """The cleanup, as a page for a clock."""

    def __init__(self, router: APIRouter, desk: Desk, room: WaitingRoom) -> None:
        self._desk = desk
        self._room = room
        router.add_api_route(
            "/cron/cleanup",
            self.cleanup,
            methods=["POST"],
            operation_id="cron_cleanup",
            tags=["delayed"],
            summary="Clean up overdue delayed messages",
            dependencies=[Depends(desk.access.cron)],
            response_model=CleanupAnswer,
            responses=refusals(401, 403, 422, 501, 503),
            openapi_extra={"security": [{"cron": []}]},
        )

    async def cleanup(self, request: Request) -> CleanupAnswer:
        """Takes no body. Answers with how many were cleaned up, how long it took, and how many
        wait now."""
        clock = Who(Role.ANYBODY, address_of(request), "token", "cron")
        async with self._desk.audit.deed(clock, "clean up", "") as deed:
            done = await self._room.delayed.cleanup()
            deed.outcome = f"done: {done.cleaned} cleaned up"
        return CleanupAnswer.model_validate(done, from_attributes=True)
