"""The HTTP service put together: its pages, who may see them, and its life."""

from __future__ import annotations

import asyncio
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
from queuecraft.http.cron import CronPages
from queuecraft.http.delayed import DelayedPages
from queuecraft.http.events import EventPages
from queuecraft.http.feed import Feed
from queuecraft.http.guard import Guard, Hosts
from queuecraft.http.health import HealthPages
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
            summary="Health, metrics, live events and delayed messages.",
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
        DelayedPages(router, access, room)
        CronPages(router, access, room)
        _document(self.api, access)
        self.api.add_middleware(Guard, hosts=Hosts(hosts), max_body=max_body)
        for kind, handler in _HANDLERS.items():
            self.api.add_exception_handler(kind, handler)

    @asynccontextmanager
    async def _life(self, api: FastAPI) -> AsyncGenerator[None]:
        """While it is served by itself. A QueueCraft that somebody else opened is theirs."""
        ours = self._qc.connection_state == "disconnected"
        if ours:
            await self._qc.open()
        try:
            yield
        finally:
            self.feed.close()
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
    return Refusal(
        422,
        "InvalidRequest",
        f"{where}: {first['msg']}",
        "GET /openapi.json tells what is expected",
    ).answer()


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
