"""`/api/live`: the overview, again and again while somebody looks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Generator

from fastapi import APIRouter
from starlette.requests import Request

from queuecraft.http import feed
from queuecraft.http.access import Role
from queuecraft.http.api.desk import Desk
from queuecraft.http.api.overview import OverviewPages
from queuecraft.http.api.routes import Routes
from queuecraft.http.feed import EventStream
from queuecraft.http.refusal import Json, Refusal

MOST = 32  # who may look at once
SOONEST = 0.5  # seconds between two of them, however fast things change


class Viewer:
    """One who looks."""

    def __init__(self, show: Callable[[], str | None]) -> None:
        self.closed = False
        self._show = show
        self._news = asyncio.Event()

    def tell(self) -> None:
        """There is something new."""
        self._news.set()

    def close(self) -> None:
        """Show nothing more."""
        self.closed = True
        self._news.set()

    async def events(self) -> AsyncGenerator[str]:
        """Every overview, until it is closed or may be seen no more."""
        yield "retry: 2000\n: looking\n\n"
        clock = asyncio.get_running_loop().time
        end = clock() + feed.LONGEST
        number = 0
        while not self.closed:
            self._news.clear()
            text = self._show()
            if text is None:
                return
            number += 1
            yield f"id: {number}\nevent: overview\ndata: {text}\n\n"
            await asyncio.sleep(min(SOONEST, max(0.0, end - clock())))
            left = end - clock()
            if left <= 0:
                return
            try:
                await asyncio.wait_for(self._news.wait(), min(feed.HEARTBEAT, left))
            except TimeoutError:
                yield ": still here\n\n"


class LivePages:
    """The overview, as a page that goes on."""

    def __init__(self, router: APIRouter, desk: Desk, overview: OverviewPages) -> None:
        self._desk = desk
        self._overview = overview
        self._viewers: set[Viewer] = set()
        self._closed = False
        self._texts: dict[Role, str] = {}
        desk.lookout.listen(self._tell)
        Routes(router, desk.access, "overview").see(
            "/api/live",
            self.look,
            "get_live",
            "Everything at a glance, live",
            status_code=200,
            response_class=EventStream,
            response_description="An event `overview` with the body of /api/overview, each time "
            "there is something new.",
        )

    async def look(self, request: Request) -> EventStream:
        """Every two seconds, and when a job moves on; until the client hangs up or its session
        ends. After an hour it has to come again."""
        await self._desk.lookout.overview()
        return EventStream(lambda: self._viewing(request))

    def close(self) -> None:
        """Let everybody go; a server that stops waits for them."""
        self._closed = True
        for viewer in self._viewers:
            viewer.close()

    @contextlib.contextmanager
    def _viewing(self, request: Request) -> Generator[Viewer]:
        if self._closed or len(self._viewers) >= MOST:
            why = "the service is stopping" if self._closed else f"{MOST} look already"
            raise Refusal(503, "Busy", why, "try again later", {"Retry-After": "5"})
        viewer = Viewer(lambda: self._text(request))
        self._viewers.add(viewer)
        try:
            yield viewer
        finally:
            self._viewers.discard(viewer)

    def _tell(self) -> None:
        self._texts.clear()
        for viewer in self._viewers:
            viewer.tell()

    def _text(self, request: Request) -> str | None:
        """The overview for whoever looks; None for one who has signed out meanwhile."""
        role = self._desk.access.role(request)
        seen = self._desk.lookout.last
        if role < Role.READER or seen is None:
            return None
        self._desk.lookout.ask()
        if role not in self._texts:
            report = self._overview.report(seen, role)
            self._texts[role] = bytes(Json(report.model_dump(mode="json")).body).decode()
        return self._texts[role]
