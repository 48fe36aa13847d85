"""The HTTP service put together: its pages, who may see them, and its life."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Match, Route

from queuecraft import __version__
from queuecraft.app import QueueCraft
from queuecraft.http.access import SCHEMES, Access
from queuecraft.http.api.audit import AuditPages
from queuecraft.http.api.dead_letters import DeadLetterPages
from queuecraft.http.api.desk import Desk
from queuecraft.http.api.exchanges import ExchangePages
from queuecraft.http.api.jobs import JobPages
from queuecraft.http.api.live import LivePages
from queuecraft.http.api.messages import MessagePages
from queuecraft.http.api.overview import OverviewPages
from queuecraft.http.api.queues import QueuePages
from queuecraft.http.api.reports import ReportPages
from queuecraft.http.api.session import SessionPages
from queuecraft.http.api.workers import WorkerPages
from queuecraft.http.audit import Audit
from queuecraft.http.cron import CronPages
from queuecraft.http.dashboard.pages import DashboardPages
from queuecraft.http.delayed import DelayedPages
from queuecraft.http.events import EventPages
from queuecraft.http.feed import EventStream, Feed
from queuecraft.http.guard import Guard, Hosts
from queuecraft.http.health import HealthPages
from queuecraft.http.jobs import Jobs
from queuecraft.http.lookout import Lookout
from queuecraft.http.masking import Masks
from queuecraft.http.metrics import MetricPages
from queuecraft.http.refusal import Json, Refusal, refusals, refused_schemas
from queuecraft.http.secrets import Secrets
from queuecraft.http.waiting import WaitingRoom
from queuecraft.model.errors import ConfigError, QueueError
from queuecraft.observers.prometheus import PrometheusObserver


class Service:
    """A FastAPI app, `api`, and what a server has to tell it when it stops."""

    def __init__(
        self,
        qc: QueueCraft,
        secrets: Secrets,
        *,
        hosts: Sequence[str],
        max_body: int,
        metrics: PrometheusObserver | None = None,
        trusted: bool = False,
        audit: str | os.PathLike[str] | None = None,
        mask: Sequence[str] = (),
        reports: str | os.PathLike[str] | None = None,
        dashboard: bool = True,
    ) -> None:
        if isinstance(hosts, str) or not all(isinstance(each, str) for each in hosts):
            raise ConfigError(f"allowed_hosts={hosts!r}: expected a list such as ['shop.example']")
        if max_body < 1:
            raise ConfigError(f"max_body={max_body}: expected a number of bytes from 1 on")
        if metrics is None:
            metrics = PrometheusObserver()
            metrics.attach(qc)
        self._qc = qc
        self.feed = Feed(qc)
        self.api = FastAPI(
            title="QueueCraft",
            version=__version__,
            summary="Queues, messages, dead letters and workers; health, metrics, live events and "
            "delayed messages.",
            openapi_url=None,  # for readers alone; and the pages that show it load from elsewhere
            redirect_slashes=False,
            lifespan=self._life,
            default_response_class=Json,
            responses=refusals(400, 408, 413, 500),
        )
        access = Access(secrets, trusted=trusted)
        room = WaitingRoom(qc)
        router = self.api.router
        HealthPages(router, qc, access, room)
        MetricPages(router, qc, access, room, metrics)
        EventPages(router, access, self.feed)
        lookout = Lookout(qc)
        book = Audit(audit)
        self._desk = desk = Desk(qc, access, book, Jobs(book, lookout.tell), lookout, Masks(mask))
        DelayedPages(router, desk, room)
        CronPages(router, desk, room)
        SessionPages(router, access, book)
        pages = ReportPages(router, access, reports)
        overview = OverviewPages(router, desk, reports=bool(pages))
        self._live = LivePages(router, desk, overview)
        for noun in (
            QueuePages,
            MessagePages,
            ExchangePages,
            WorkerPages,
            DeadLetterPages,
            JobPages,
            AuditPages,
        ):
            noun(router, desk)
        if dashboard:
            DashboardPages(router)
        _document(self.api, access)
        self.api.add_middleware(Guard, hosts=Hosts(hosts), max_body=max_body)
        for kind, handler in _HANDLERS.items():
            self.api.add_exception_handler(kind, handler)

    def stop(self) -> None:
        """Let go of those who listen: a server that stops waits for them."""
        self.feed.close()
        self._live.close()

    @asynccontextmanager
    async def _life(self, api: FastAPI) -> AsyncGenerator[None]:
        """While it is served by itself. A QueueCraft that somebody else opened is theirs."""
        ours = self._qc.connection_state == "disconnected"
        if ours:
            await self._qc.open()
        self._desk.lookout.start()
        try:
            yield
        finally:
            self.stop()
            await self._desk.jobs.close()
            await self._desk.lookout.close()
            self._desk.access.sessions.clear()
            if ours:
                await self._qc.shutdown()


def _document(api: FastAPI, access: Access) -> None:
    """`GET /openapi.json`, with what FastAPI does not know about who may do what."""
    generate = api.openapi

    def openapi() -> dict[str, Any]:
        if api.openapi_schema is None:
            components = generate()["components"]
            components["securitySchemes"] = SCHEMES
            components["schemas"] |= refused_schemas()
            for operations in generate()["paths"].values():
                for operation in operations.values():
                    stream = operation["responses"].get("200", {}).get("content", {})
                    if EventStream.media_type in stream:
                        # Nothing to say about a text that goes on; readers of the document differ
                        # on whether they take it for one, or for each of its events.
                        stream[EventStream.media_type] = {"schema": {}}
        return generate()

    @api.get(
        "/openapi.json",
        tags=["about"],
        summary="This document",
        dependencies=[Depends(access.reader)],
        responses=refusals(401),
        openapi_extra={"security": [{"read": []}]},
    )
    async def show() -> dict[str, Any]:
        return openapi()

    api.openapi = openapi  # type: ignore[method-assign]


# -- errors, in our shape ----------------------------------------------------------------------


async def _refused(request: Request, error: Any) -> Json:
    refusal: Refusal = error
    return refusal.answer()


async def _queue_error(request: Request, error: Any) -> Json:
    return Refusal.of(error).answer()


async def _http_error(request: Request, error: Any) -> Json:
    failed: HTTPException = error
    match failed.status_code:
        case 400:
            hint = "send one JSON object that is neither very deep nor has endless numbers"
            refusal = Refusal(400, "InvalidRequest", "the body cannot be read", hint)
        case 404:
            hint = "GET /openapi.json lists what there is"
            refusal = Refusal(404, "NotFound", "there is no such page", hint)
        case 405:
            methods = ", ".join(sorted(_methods(request)))
            refusal = Refusal(
                405,
                "MethodNotAllowed",
                "this page has no such method",
                f"it has {methods}",
                {"Allow": methods},
            )
        case status:
            refusal = Refusal(status, "Refused", str(failed.detail), headers=failed.headers)
    return refusal.answer()


def _methods(request: Request) -> set[str]:
    """All that the page has; a router names those of its first route alone."""
    api: FastAPI = request.app
    routes = [route for route in api.routes if isinstance(route, Route)]
    path = next(each.path for each in routes if each.matches(request.scope)[0] is not Match.NONE)
    return {name for each in routes if each.path == path for name in each.methods or ()}


async def _invalid(request: Request, error: Any) -> Json:
    failed: RequestValidationError = error
    first: Any = failed.errors()[0]
    where = " ".join(str(part) for part in first["loc"])
    hint = "GET /openapi.json tells what is expected"
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if first["loc"] == ("body",) and not kind.endswith("json"):
        hint = "send 'Content-Type: application/json'"
    return Refusal(422, "InvalidRequest", f"{where}: {first['msg']}", hint).answer()


async def _timed_out(request: Request, error: Any) -> Json:
    return Refusal(
        503, "NoAnswer", "the broker did not answer in time", "try again when it is back"
    ).answer()


_HANDLERS: dict[type[Exception], Callable[..., Any]] = {
    Refusal: _refused,
    QueueError: _queue_error,
    HTTPException: _http_error,
    RequestValidationError: _invalid,
    asyncio.TimeoutError: _timed_out,
}
