"""`GET /health`: one word for everybody, the reasons for those who have a token."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request

from queuecraft.app import QueueCraft
from queuecraft.http.access import Access, Role
from queuecraft.http.refusal import Json, refusals
from queuecraft.http.waiting import DelayedReport, WaitingRoom
from queuecraft.runtime.facts import ConnectionState
from queuecraft.runtime.health import Health

Word: TypeAlias = Literal["healthy", "warning", "critical"]


class ConnectionReport(BaseModel):
    """The connection to the broker, and what last came over it."""

    status: Literal["healthy", "unhealthy"]
    state: ConnectionState
    last_message_at: datetime | None
    last_error: str | None
    disconnected_at: datetime | None
    blocked: str | None
    paused: dict[str, str]


class HealthReport(BaseModel):
    """Whether all is well. Without a token, `status` is all there is."""

    status: Word = Field(
        description="critical: not connected, a queue is paused, or delayed messages are at their "
        "limit. warning: delayed messages are near it."
    )
    connection: ConnectionReport | None = None
    delayed: DelayedReport | None = None
    delayed_error: str | None = None


class HealthPages:
    """Whether all is well, as a page."""

    def __init__(
        self, router: APIRouter, qc: QueueCraft, access: Access, room: WaitingRoom
    ) -> None:
        self._qc = qc
        self._access = access
        self._room = room
        for method in ("GET", "HEAD"):
            router.add_api_route(
                "/health",
                self.health,
                methods=[method],
                operation_id=f"{method.lower()}_health",
                tags=["health"],
                summary="Whether all is well",
                response_model=HealthReport,
                response_description="Healthy, or only a warning.",
                responses={
                    **refusals(401),
                    503: {"model": HealthReport, "description": "Critical."},
                },
                openapi_extra={"security": [{}, {"read": []}]},
            )

    async def health(self, request: Request) -> Json:
        """200 for `healthy` and `warning`, 503 for `critical`. With a token, also why."""
        role = self._access.role(request)
        health = self._qc.health_check()
        delayed, error = await self._room.look()
        word = judged(health, delayed, error)
        report = HealthReport(status=word)
        if role >= Role.READER:
            report.connection = _connection(health)
            report.delayed = delayed
            report.delayed_error = error
        return Json(
            report.model_dump(mode="json", exclude_unset=True),
            503 if word == "critical" else 200,
        )


def judged(health: Health, delayed: DelayedReport | None, error: str | None) -> Word:
    """The worst that is known, in a word.

    >>> judged(Health(status="unhealthy", connection_state="reconnecting"), None, None)
    'critical'
    """
    if not health.ok or error is not None:
        return "critical"
    return "healthy" if delayed is None else delayed.status


def _connection(health: Health) -> ConnectionReport:
    return ConnectionReport(
        status=health.status,
        state=health.connection_state,
        last_message_at=health.last_message_at,
        last_error=health.last_error,
        disconnected_at=health.disconnected_at,
        blocked=health.blocked,
        paused=dict(health.paused),
    )
