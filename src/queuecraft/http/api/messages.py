"""`/api/queues/{name}/messages`: what lies in a queue, and taking it elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.requests import Request

from queuecraft.admin import PeekedMessage
from queuecraft.http.api.desk import Desk
from queuecraft.http.api.jobs import JobReport
from queuecraft.http.api.queues import NameText
from queuecraft.http.api.routes import Given, Id, Name, Routes, Told, in_time
from queuecraft.http.jobs import Job
from queuecraft.http.masking import Body
from queuecraft.http.refusal import Refusal
from queuecraft.runtime.redrive import Redrive

LOOKED_AT = 1000  # messages among which one is found by its id


class MessageLine(Told):
    """A message, in a line."""

    id: str
    event: str
    key: str | None
    timestamp: datetime | None
    size: int
    preview: str | None
    redeliveries: int | None
    attempt: int


class MessageList(Told):
    """The next messages of a queue."""

    messages: list[MessageLine]


class MessageReport(MessageLine):
    """A message with all it carries. Readers see of payloads and of an application's own headers
    what types they have."""

    queue: str
    headers: dict[str, Any]
    content_type: str | None
    content_encoding: str | None
    payload: Any
    payload_error: str | None
    body_base64: str | None
    truncated: bool


class MoveRequest(Given):
    """Where to take messages."""

    to: NameText
    limit: Annotated[int, Field(ge=1, le=10**9)] | None = None
    rate: Annotated[float, Field(gt=0, le=10**6)] | None = None
    dry_run: bool = False


class MessagePages:
    """Messages, as pages."""

    def __init__(self, router: APIRouter, desk: Desk) -> None:
        self._desk = desk
        routes = Routes(router, desk.access, "messages")
        all_of_it = "/api/queues/{name:name}/messages"
        routes.see(
            all_of_it,
            self.list,
            "list_messages",
            "The next messages of a queue",
            *(403, 404),
            model=MessageList,
        )
        routes.see(
            all_of_it + "/{id:rest}",
            self.show,
            "get_message",
            "A message with all it carries",
            *(403, 404),
            model=MessageReport,
        )
        routes.act(
            "POST",
            "/api/queues/{name:name}/move",
            self.move,
            "move_messages",
            "Take what is ready to another queue",
            *(404, 409),
            status=202,
            model=JobReport,
        )

    async def list(
        self,
        request: Request,
        name: Name,
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
        force: Annotated[
            bool,
            Query(description="Also where looking marks messages; for operators alone."),
        ] = False,
    ) -> MessageList:
        """They stay where they are. Some brokers mark what was looked at as delivered before:
        there this is refused for a queue with consumers."""
        whole = self._desk.whole(request)
        found = await self._peek(request, name, limit, force)
        return MessageList(messages=[MessageLine(**self._line(each, whole)) for each in found])

    async def show(
        self, request: Request, name: Name, id: Id, force: bool = False
    ) -> MessageReport:
        """One of the first 1,000 messages of a queue."""
        whole = self._desk.whole(request)
        for each in await self._peek(request, name, LOOKED_AT, force):
            if each.id == id:
                masks = self._desk.masks
                body = masks.body(each.payload, each.unreadable, each.body, whole=whole)
                return MessageReport(
                    **self._line(each, whole),
                    queue=each.queue,
                    headers=masks.headers(each.headers, whole=whole),
                    content_type=each.content_type,
                    content_encoding=each.content_encoding,
                    **body_fields(body),
                )
        raise Refusal(
            404,
            "NotFound",
            f"no message of this id is among the first {LOOKED_AT:,} that are ready",
            "it may have been handled, or be under way",
        )

    async def move(self, request: Request, name: Name, given: MoveRequest) -> JobReport:
        """In order, with id, headers and times kept. A job does it: all that was there at the
        start, at most `limit`, at most `rate` a second; a dry run only counts."""
        desk = self._desk
        async with in_time():
            await desk.qc.admin.inspect(name)
            await desk.qc.admin.inspect(given.to)
        if name == given.to:
            raise Refusal(422, "InvalidRequest", "that is one queue", "name another as `to`")
        most = "" if given.limit is None else f" up to {given.limit:,}"
        job = Job(
            kind="move",
            queue=name,
            by=desk.by(request),
            what=f"Move{most} messages of {name} to {given.to}",
            dry_run=given.dry_run,
        )

        async def work(hear: Callable[[Redrive], object]) -> Redrive:
            return await desk.qc.admin.move(
                name,
                given.to,
                limit=given.limit,
                rate=given.rate,
                dry_run=given.dry_run,
                on_progress=hear,
            )

        return JobReport.of(await desk.jobs.start(job, desk.access.who(request), work))

    async def _peek(
        self, request: Request, name: str, limit: int, force: bool
    ) -> Sequence[PeekedMessage]:
        if force:
            self._desk.access.operator(request)  # it may leave a mark: looking is not enough
        async with in_time():
            return await self._desk.qc.admin.peek(name, limit, force=force)

    def _line(self, message: PeekedMessage, whole: bool) -> dict[str, Any]:
        preview = self._desk.masks.preview(message.payload, message.unreadable, whole=whole)
        return {
            "id": message.id,
            "event": message.routing_key,
            "key": message.key,
            "timestamp": message.published_at,
            "size": message.size,
            "preview": preview,
            "redeliveries": message.redeliveries,
            "attempt": message.attempt,
        }


def body_fields(body: Body) -> dict[str, Any]:
    """What is shown of a body, as fields of a message."""
    return {
        "payload": body.payload,
        "payload_error": body.payload_error,
        "body_base64": body.body_base64,
        "truncated": body.truncated,
    }
