"""`/api/reports`: pages that the pipeline has made, from a directory the service was given."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from fastapi import APIRouter
from starlette.responses import FileResponse

from queuecraft.http.access import Access
from queuecraft.http.api.routes import Name, Routes, Told
from queuecraft.http.refusal import Refusal
from queuecraft.model.errors import ConfigError

MOST = 1000
POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
)


class ReportLine(Told):
    """A report."""

    name: str
    size: int
    modified_at: datetime


class ReportList(Told):
    """Reports, the newest first."""

    reports: list[ReportLine]


class Page(FileResponse):
    """A page of HTML."""

    media_type = "text/html"


class ReportPages:
    """Reports, as pages; they run no scripts and load nothing."""

    def __init__(
        self, router: APIRouter, access: Access, folder: str | os.PathLike[str] | None
    ) -> None:
        self._folder = None if folder is None else Path(folder).absolute()
        if self._folder is not None and not self._folder.is_dir():
            raise ConfigError(f"reports={str(folder)!r}: there is no such directory")
        routes = Routes(router, access, "reports")
        routes.see("/api/reports", self.list, "list_reports", "Reports there are", model=ReportList)
        routes.see(
            "/reports/{name:name}",
            self.show,
            "get_report",
            "A report",
            404,
            response_class=Page,
            response_description="The page.",
        )

    def __bool__(self) -> bool:
        return self._folder is not None

    async def list(self) -> ReportList:
        """The `.html` files of the directory; none where the service was given none."""
        found = await asyncio.to_thread(self._found)
        return ReportList(reports=sorted(found, key=lambda each: each.modified_at, reverse=True))

    async def show(self, name: Name) -> FileResponse:
        """The page itself."""
        for each in await asyncio.to_thread(self._found):
            if each.name == name and self._folder is not None:
                return Page(
                    self._folder / name,
                    headers={"Content-Security-Policy": POLICY, "Cache-Control": "no-store"},
                )
        raise Refusal(404, "NotFound", "there is no such report", "GET /api/reports lists them")

    def _found(self) -> Sequence[ReportLine]:
        if self._folder is None:
            return []
        found: list[ReportLine] = []
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    # A link could lead out of the directory.
                    if not entry.name.endswith(".html") or not entry.name.isprintable():
                        continue
                    about = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(about.st_mode):
                        changed = datetime.fromtimestamp(about.st_mtime, UTC)
                        found.append(
                            ReportLine(name=entry.name, size=about.st_size, modified_at=changed)
                        )
        except OSError:
            return []
        return sorted(found, key=lambda each: each.modified_at)[-MOST:]
