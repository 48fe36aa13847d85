"""`/api/queues`: see them, make them, pause them, purge and delete them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from queuecraft.admin.overview import QueueRow
from queuecraft.http.api.desk import Desk
from queuecraft.http.api.routes import Given, Name, Routes, Told, confirmed, in_time, nothing
from queuecraft.http.api.rows import GroupLine, Past, QueueLine, WorkerLine, by_drain, past
from queuecraft.model.naming import check_name

Sort: TypeAlias = Literal["drain", "name", "ready", "dead", "oldest_age", "handled_per_second"]
NameText: TypeAlias = Annotated[str, Field(min_length=1, max_length=255)]
Patterns: TypeAlias = Annotated[list[NameText], Field(max_length=100)]
Header: TypeAlias = bool | str | int | float


class QueueList(Told):
    """Queues, as many as were asked for."""

    total: int
    queues: list[QueueLine]


class BindingLine(Told):
    """What a queue wants of an exchange."""

    exchange: str
    type: str
    pattern: str
    headers: dict[str, Any]


class ConsumerLine(Told):
    """Somebody who receives from the queue, as the broker tells."""

    name: str
    prefetch: int | None


class QueueHistory(Told):
    """The last minutes, oldest first."""

    ready: Past
    handled_per_second: Past


class QueueReport(Told):
    """All that is known of a queue."""

    queue: QueueLine
    bindings: list[BindingLine]
    consumers: list[ConsumerLine]
    workers: list[WorkerLine]
    groups: list[GroupLine]
    dead_letter_queue: str | None
    history: QueueHistory


class NewQueue(Given):
    """A queue to make."""

    name: NameText = Field(examples=["billing"])
    patterns: Patterns = Field(default=[], examples=[["order.*"]])
    exchange: NameText | None = None
    dead_letters: bool = True


class Created(Told):
    """A queue that is there now."""

    name: str


class Bindings(Given):
    """Events that a queue is to get, or to get no more."""

    patterns: Patterns = Field(default=[], examples=[["order.*"]])
    exchange: NameText | None = None
    headers: Annotated[dict[NameText, Header], Field(max_length=32)] | None = None


class Confirmation(Given):
    """The name of the queue, repeated."""

    confirm: str


class Purged(Told):
    """How many messages are gone."""

    purged: int


class PauseReason(Given):
    """Why nothing is to be handled."""

    reason: Annotated[str, Field(max_length=500)] = ""


class QueuePages:
    """Queues, as pages."""

    def __init__(self, router: APIRouter, desk: Desk) -> None:
        self._desk = desk
        self._admin = desk.qc.admin
        routes = Routes(router, desk.access, "queues")
        see, act = routes.see, routes.act
        one = "/api/queues/{name:name}"
        see("/api/queues", self.list, "list_queues", "Queues, the slowest first", model=QueueList)
        see(one, self.show, "get_queue", "All that is known of a queue", 404, model=QueueReport)
        act(
            "POST",
            "/api/queues",
            self.create,
            "create_queue",
            "Make a queue, or add to it",
            409,
            status=201,
            model=Created,
        )
        act("DELETE", one, self.delete, "delete_queue", "Remove a queue and what is in it", 404)
        act(
            "POST",
            f"{one}/purge",
            self.purge,
            "purge_queue",
            "Forget what is ready in a queue",
            404,
            status=200,
            model=Purged,
        )
        act("POST", f"{one}/pause", self.pause, "pause_queue", "Have nothing handled", 404)
        act("POST", f"{one}/resume", self.resume, "resume_queue", "Go on", 404)
        act("POST", f"{one}/bindings", self.bind, "bind_queue", "Give it more events", 404, 409)
        act("DELETE", f"{one}/bindings", self.unbind, "unbind_queue", "Give it fewer", 404, 409)

    async def list(
        self,
        like: Annotated[
            str,
            Query(alias="filter", max_length=255, description="A text that the name contains."),
        ] = "",
        sort: Sort = "drain",
        order: Annotated[
            Literal["asc", "desc"] | None,
            Query(description="`asc` turns `drain` round: the worst comes first without it."),
        ] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
        dead_letters: Annotated[
            bool, Query(description="Also queues that hold dead letters.")
        ] = False,
    ) -> QueueList:
        """From the last look at the broker, a few seconds old at most."""
        overview = await self._desk.lookout.overview()
        wanted = like.casefold()
        rows = [
            row
            for row in overview.queues
            if (dead_letters or not row.holds_dead_letters) and wanted in row.name.casefold()
        ]
        rows = _sorted(rows, sort, order)
        shown = rows[offset : offset + limit]
        return QueueList(total=len(rows), queues=[QueueLine.model_validate(row) for row in shown])

    async def show(self, name: Name) -> QueueReport:
        """What is in it, who gives it messages and who takes them, and what has failed."""
        desk = self._desk
        check_name("queue", name)
        overview = await desk.lookout.overview()
        row = next((row for row in overview.queues if row.name == name), None)
        async with in_time():
            row = row or await desk.row(name)
            topology = await desk.topology()
        dead = desk.dead_letter_queue(name, overview)
        if dead == name or dead not in {*topology.queues, *(row.name for row in overview.queues)}:
            dead = None
        points = desk.lookout.past.of(name)
        return QueueReport(
            queue=QueueLine.model_validate(row),
            bindings=[
                BindingLine(
                    exchange=each.exchange.name,
                    type=each.exchange.type,
                    pattern=each.pattern,
                    headers=desk.masks.headers(each.headers, whole=True),
                )
                for each, queue in topology.bindings
                if queue == name
            ],
            consumers=[
                ConsumerLine(name=each.name, prefetch=each.prefetch)
                for each in topology.consumers
                if each.queue == name
            ],
            workers=[
                WorkerLine.model_validate(each)
                for each in overview.workers or ()
                if each.queue == name
            ],
            groups=[
                GroupLine.model_validate(each)
                for each in overview.groups
                if each.queue in (name, dead)
            ],
            dead_letter_queue=dead,
            history=QueueHistory(
                ready=past((at, ready) for at, ready, _ in points),
                handled_per_second=past((at, handled) for at, _, handled in points),
            ),
        )

    async def create(self, request: Request, given: NewQueue) -> Created:
        """As a worker of that name would make it: with its dead-letter queue, and bound to the
        events of these patterns. Making it again only adds."""
        detail = f"patterns {', '.join(given.patterns)}" if given.patterns else ""
        check_name("queue", given.name)
        async with self._desk.deed(request, "create", given.name, detail), in_time():
            await self._admin.declare(
                given.name,
                *given.patterns,
                exchange=given.exchange,
                dead_letters=given.dead_letters,
            )
        return Created(name=given.name)

    async def delete(
        self, request: Request, name: Name, confirm: Annotated[str, Query(max_length=255)]
    ) -> Response:
        """With its bindings and all its messages, for good; its dead-letter queue stays. `confirm`
        repeats the name."""
        confirmed(confirm, name)
        async with self._desk.deed(request, "delete", name), in_time():
            await self._admin.delete(name)
        return nothing()

    async def purge(self, request: Request, name: Name, given: Confirmation) -> Purged:
        """For good. What is in flight or delayed stays."""
        confirmed(given.confirm, name)
        async with self._desk.deed(request, "purge", name) as deed, in_time():
            purged = await self._admin.purge(name)
            deed.outcome = f"done: {purged} purged"
        return Purged(purged=purged)

    async def pause(self, request: Request, name: Name, given: PauseReason) -> Response:
        """In every process, also in those that start later, until it is resumed. What runs is
        finished; what comes waits."""
        async with self._desk.deed(request, "pause", name, given.reason), in_time():
            await self._admin.inspect(name)
            by = self._desk.by(request)
            await self._admin.pause(name, reason=given.reason, by=by)
        return nothing()

    async def resume(self, request: Request, name: Name) -> Response:
        """Have its messages handled again."""
        async with self._desk.deed(request, "resume", name), in_time():
            await self._admin.inspect(name)
            await self._admin.resume(name, by=self._desk.by(request))
        return nothing()

    async def bind(self, request: Request, name: Name, given: Bindings) -> Response:
        """From now on it gets the events of these patterns too."""
        await self._bindings(request, name, given, self._admin.bind, "bind")
        return nothing()

    async def unbind(self, request: Request, name: Name, given: Bindings) -> Response:
        """From now on it gets the events of these patterns no more. What it has it keeps; a worker
        that is started binds its queue again."""
        await self._bindings(request, name, given, self._admin.unbind, "unbind")
        return nothing()

    async def _bindings(
        self, request: Request, name: str, given: Bindings, do: Callable[..., Any], action: str
    ) -> None:
        detail = ", ".join(given.patterns)
        if given.exchange is not None:
            detail = f"{detail} of {given.exchange}"
        async with self._desk.deed(request, action, name, detail), in_time():
            await do(name, *given.patterns, exchange=given.exchange, headers=given.headers)


def _sorted(rows: list[QueueRow], sort: Sort, order: str | None) -> list[QueueRow]:
    if sort == "drain":
        return sorted(rows, key=by_drain, reverse=order == "asc")
    if sort == "name":
        return sorted(rows, key=lambda row: row.name, reverse=order == "desc")
    # What is not known comes last, whichever way.
    known = [row for row in rows if getattr(row, sort) is not None]
    unknown = [row for row in rows if getattr(row, sort) is None]
    known.sort(key=lambda row: row.name)
    known.sort(key=lambda row: getattr(row, sort), reverse=order != "asc")
    return known + unknown
