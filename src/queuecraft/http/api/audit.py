"""`/api/audit`: who did what."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query

from queuecraft.http.api.desk import Desk
from queuecraft.http.api.routes import Routes, Told


class AuditBy(Told):
    """Somebody. The name is what was typed when signing in: nobody has checked it."""

    role: str
    name: str
    address: str


class AuditLine(Told):
    """A deed, and how it went."""

    at: datetime
    by: AuditBy
    action: str
    target: str
    detail: str
    outcome: str


class AuditList(Told):
    """The last deeds, newest first."""

    entries: list[AuditLine]


class AuditPages:
    """The audit log, as a page."""

    def __init__(self, router: APIRouter, desk: Desk) -> None:
        self._desk = desk
        Routes(router, desk.access, "audit").see(
            "/api/audit", self.list, "list_audit", "Who did what", model=AuditList
        )

    async def list(self, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> AuditList:
        """Since the service started, the last thousand at most."""
        entries = self._desk.audit.last(limit)
        return AuditList(entries=[AuditLine.model_validate(each.fields()) for each in entries])
