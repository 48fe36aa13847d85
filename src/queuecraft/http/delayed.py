"""`/delayed`: see what waits for its time, add to it, take from it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query
from pydantic import BaseModel, Field
from pydantic.json_schema import SkipJsonSchema
from starlette.requests import Request
from starlette.responses import Response

from queuecraft.http.api.desk import Desk
from queuecraft.http.refusal import Refusal, refusals
from queuecraft.http.request import DelayedRequest, schema
from queuecraft.http.waiting import DelayedHistory, WaitingRoom
from queuecraft.runtime.delayed import DelayedMessage

_PLACE = r"^[0-9]{1,15}(\.[0-9]{1,15})?_[^\x00-\x1f\x7f]+$"


class Waiting(BaseModel):
    """A message that waits."""

    id: str
    target: str
    kind: Literal["event", "queue"]
    due_at: datetime
    added_at: datetime
    size: int
    key: str | None
    correlation_id: str | None
    failures: int
    preview: str | None
    """The beginning of the payload; for operators alone."""


class WaitingPage(BaseModel):
    """Messages that wait, the next due first."""

    messages: list[Waiting]
    next: str | None
    """Pass it as `after` for the following page; null on the last."""


class Added(BaseModel):
    """A message that was accepted."""

    id: str


class DelayedPages:
    """Delayed messages, as pages."""

    def __init__(self, router: APIRouter, desk: Desk, room: WaitingRoom) -> None:
        self._desk = desk
        self._room = room
        access = desk.access
        reader: dict[str, Any] = {"security": [{"read": []}]}
        operator: dict[str, Any] = {"security": [{"operator": []}]}
        router.add_api_route(
            "/delayed",
            self.list,
            methods=["GET"],
            operation_id="list_delayed",
            tags=["delayed"],
            summary="Messages that wait, the next due first",
            dependencies=[Depends(access.reader)],
            response_model=WaitingPage,
            responses=refusals(401, 422, 501, 503),
            openapi_extra=reader,
        )
        router.add_api_route(
            "/delayed",
            self.add,
            methods=["POST"],
            operation_id="add_delayed",
            tags=["delayed"],
            summary="Have a message delivered later",
            status_code=201,
            dependencies=[Depends(access.operator)],
            response_model=Added,
            responses=refusals(401, 403, 415, 422, 501, 503),
            openapi_extra={
                **operator,
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": schema()}},
                },
            },
        )
        router.add_api_route(
            "/delayed/stats",
            self.stats,
            methods=["GET"],
            operation_id="delayed_stats",
            tags=["delayed"],
            summary="How many wait, and how that changes",
            dependencies=[Depends(access.reader)],
            response_model=DelayedHistory,
            responses=refusals(401, 422, 501, 503),
            openapi_extra=reader,
        )
        router.add_api_route(
            "/delayed/{id:rest}",
            self.cancel,
            methods=["DELETE"],
            operation_id="cancel_delayed",
            tags=["delayed"],
            summary="Take a message back before it is due",
            status_code=204,
            response_class=Response,
            dependencies=[Depends(access.operator)],
            responses=refusals(401, 403, 404, 422, 501, 503),
            openapi_extra=operator,
        )

    async def list(
        self,
        request: Request,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        after: Annotated[
            Annotated[str, Field(max_length=300, pattern=_PLACE)] | SkipJsonSchema[None],
            Query(description="The `next` of another page."),
        ] = None,
    ) -> WaitingPage:
        """A page of them, without payloads; operators also see how each payload begins, unless
        fields are masked."""
        # The beginning of a text cannot be masked.
        shown = self._desk.whole(request) and not self._desk.masks
        page = await self._room.delayed.list(limit=limit, after=after)
        return WaitingPage(messages=[_waiting(each, shown) for each in page], next=page.next)

    async def add(self, request: Request) -> Added:
        """201 with its id once it is stored; 503 `QueueFull` at the limit, and nothing is added."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Refusal(
                415, "NotJson", "the body must be JSON", "send 'Content-Type: application/json'"
            )
        wanted = DelayedRequest.read(await request.body())
        target = wanted.target if isinstance(wanted.target, str) else wanted.target.name
        async with self._desk.deed(request, "delay", target) as deed:
            id = await self._room.delayed.add(wanted.target, wanted.payload, **wanted.options)
            deed.outcome = f"done: {id}"
        return Added(id=id)

    async def stats(self) -> DelayedHistory:
        """Sizes, growth and cleanups; `history` has a size for each minute."""
        return await self._room.stats()

    async def cancel(
        self, request: Request, id: Annotated[str, Path(min_length=1, max_length=255)]
    ) -> Response:
        """204 when it will not be delivered; 404 when there is none, or it is on its way."""
        async with self._desk.deed(request, "cancel delayed", id):
            if not await self._room.delayed.cancel(id):
                raise Refusal(
                    404,
                    "NotFound",
                    "no message of this id waits",
                    "it may be delivered already; GET /delayed lists those that wait",
                )
        return Response(status_code=204)


def _waiting(message: DelayedMessage, shown: bool) -> Waiting:
    return Waiting(
        id=message.id,
        target=message.target,
        kind=message.kind,
        due_at=message.due_at,
        added_at=message.added_at,
        size=message.size,
        key=message.key,
        correlation_id=message.correlation_id,
        failures=message.failures,
        preview=message.preview if shown else None,
    )
