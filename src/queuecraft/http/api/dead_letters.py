"""`/api/dead-letters`: what failed and why, and sending it back or forgetting it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.requests import Request

from queuecraft.http.api.desk import Desk
from queuecraft.http.api.jobs import JobReport
from queuecraft.http.api.messages import MessageLine, MessageReport, body_fields
from queuecraft.http.api.queues import NameText
from queuecraft.http.api.routes import Given, Id, Name, Routes, Told, confirmed, in_time
from queuecraft.http.api.rows import GroupLine
from queuecraft.http.excerpt import Excerpt
from queuecraft.http.jobs import Job, Kind, Work
from queuecraft.http.refusal import Refusal
from queuecraft.model.errors import ConfigError, PayloadError
from queuecraft.runtime.dead_letters import LOOK, NEAR, DeadMessage, Filter
from queuecraft.runtime.dead_message import moment
from queuecraft.runtime.redrive import Redrive

GROUPS = 1000  # where no two letters failed alike, there is no end of them

Text: TypeAlias = Annotated[str, Field(min_length=1, max_length=500)]
Ids: TypeAlias = Annotated[
    list[Annotated[str, Field(max_length=1000)]], Field(min_length=1, max_length=1000)
]


class LetterLine(MessageLine):
    """A dead letter, in a line."""

    fingerprint: str
    error_type: str
    error: str
    reason: str
    failures: int
    failed_at: datetime | None


class LetterList(Told):
    """Dead letters, the oldest first, of `looked_at` that were looked at and `total` there are.
    Where several queues share a place for them, `total` is of the first 10,000 in it."""

    letters: list[LetterLine]
    looked_at: int
    total: int


class GroupList(Told):
    """What failed alike, of `looked_at` dead letters that were looked at and `total` there are.
    Where several queues share a place for them, `total` is of the first 10,000 in it."""

    groups: list[GroupLine]
    looked_at: int
    total: int


class Attempt(Told):
    """A failure that the headers tell of."""

    at: datetime | None
    attempt: int
    error: str


class Story(Told):
    """How it came to be a dead letter."""

    error_type: str
    error: str
    reason: str
    traceback: str
    failures: int
    failed_at: datetime | None
    original_queue: str | None
    fingerprint: str
    attempts: list[Attempt]


class LetterReport(MessageReport):
    """A dead letter with all it carries."""

    story: Story


class Chosen(Given):
    """Which dead letters; what is left out does not matter, so nothing at all means all."""

    group: Text | None = Field(default=None, description="The fingerprint of a group.")
    ids: Ids | None = None
    error: Text | None = Field(default=None, description="Found in the error's type or text.")
    event: Text | None = Field(default=None, description="A name or a pattern, as `order.*`.")
    limit: Annotated[int, Field(ge=1, le=10**9)] | None = None
    dry_run: bool = False

    @property
    def where(self) -> Filter | None:
        """The same for the engine."""
        return chosen(self.group, self.error, self.event, self.ids)

    @property
    def words(self) -> str:
        """The same for a person."""
        parts = [
            "" if self.group is None else f"of the group {self.group}",
            "" if self.error is None else f"with {self.error!r} in their error",
            "" if self.event is None else f"of {self.event}",
            "" if self.ids is None else f"({len(self.ids):,} by their ids)",
        ]
        most = "dead letters" if self.limit is None else f"up to {self.limit:,} dead letters"
        return " ".join(filter(None, (most, *parts)))


class RedriveRequest(Chosen):
    """What to send back, and how carefully."""

    rate: Annotated[float, Field(gt=0, le=10**6)] | None = None
    canary: Annotated[int, Field(ge=1, le=10_000)] | None = None
    patience: Annotated[float, Field(ge=1, le=3600)] = 30.0
    to: NameText | None = None


class DeleteRequest(Chosen):
    """What to forget for good; `confirm` repeats the queue."""

    confirm: str


class DeadLetterPages:
    """Dead letters, as pages."""

    def __init__(self, router: APIRouter, desk: Desk) -> None:
        self._desk = desk
        routes = Routes(router, desk.access, "dead letters")
        see, act = routes.see, routes.act
        above, one = "/api/dead-letters", "/api/dead-letters/{queue:name}"
        see(above, self.list, "list_dead_letters", "Dead letters of a queue", 404, model=LetterList)
        see(
            f"{above}/groups",
            self.groups,
            "list_failure_groups",
            "What failed alike",
            404,
            model=GroupList,
        )
        act(
            "POST",
            f"{one}/redrive",
            self.redrive,
            "redrive_dead_letters",
            "Send dead letters back",
            *(404, 409),
            status=202,
            model=JobReport,
        )
        act(
            "POST",
            f"{one}/delete",
            self.delete,
            "delete_dead_letters",
            "Forget dead letters",
            *(404, 409),
            status=202,
            model=JobReport,
        )
        see(
            one + "/{id:rest}",
            self.show,
            "get_dead_letter",
            "A dead letter and its story",
            404,
            model=LetterReport,
        )

    async def list(
        self,
        request: Request,
        queue: Annotated[str, Query(min_length=1, max_length=255)],
        group: Annotated[str, Query(max_length=500, description="A fingerprint.")] = "",
        error: Annotated[str, Query(max_length=500)] = "",
        event: Annotated[str, Query(max_length=500)] = "",
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        look: Annotated[int, Query(ge=1, le=LOOK, description="How far to look for them.")] = NEAR,
    ) -> LetterList:
        """Of the work queue or of the dead-letter queue that is named. Those of a group, an error
        or an event are looked for among the first 2,000, as groups are, or as far as `look`."""
        engine = self._desk.qc.dead_letters
        where = chosen(group or None, error or None, event or None, None)
        whole = self._desk.whole(request)
        async with in_time():
            await self._desk.qc.admin.inspect(queue)
            total = await engine.count(queue, look=LOOK)
            letters = await engine.list(queue, where=where, limit=limit, look=look)
        return LetterList(
            letters=[LetterLine(**self._line(each, whole)) for each in letters],
            looked_at=min(total, limit if where is None else max(look, limit)),
            total=total,
        )

    async def groups(self, queue: Annotated[str, Query(max_length=255)] = "") -> GroupList:
        """Of one queue, or of all, the largest first, 1,000 at most. Kept up to date in the
        background: a group may be a few seconds old."""
        overview = await self._desk.lookout.overview()
        if not queue:
            groups = overview.groups
            return GroupList(
                groups=[GroupLine.model_validate(each) for each in groups[:GROUPS]],
                looked_at=overview.looked_at,
                total=overview.dead,
            )
        place = self._desk.dead_letter_queue(queue, overview) or queue
        own = [each for each in overview.groups if each.queue == place]
        engine = self._desk.qc.dead_letters
        async with in_time():
            await self._desk.qc.admin.inspect(queue)
            total = await engine.count(queue, look=LOOK)
            if total and not own:
                own = await engine.groups(queue)
        return GroupList(
            groups=[GroupLine.model_validate(each) for each in own[:GROUPS]],
            looked_at=sum(each.count for each in own),
            total=total,
        )

    async def show(
        self,
        request: Request,
        queue: Name,
        id: Id,
        look: Annotated[int, Query(ge=1, le=LOOK, description="How far to look for it.")] = NEAR,
    ) -> LetterReport:
        """Its payload, its headers, and how it failed. It is looked for among the first 2,000,
        where the lists and the groups are from, or as far as `look`, 10,000 at most: to look so
        far is to hold so many letters at once."""
        engine = self._desk.qc.dead_letters
        async with in_time():
            await self._desk.qc.admin.inspect(queue)
            letter = await engine.find(queue, id, look=look)
            total = await engine.depth(queue) if letter is None else 0
        if total > look:
            raise Refusal(
                404,
                "NotAmongTheFirst",
                f"it is not among the first {look:,} of {total:,} dead letters",
                _further(look, total),
            )
        if letter is None:
            raise Refusal(
                404,
                "NotFound",
                "there is no dead letter of this id",
                "it may have been sent back; GET /api/dead-letters?queue=… lists those there are",
            )
        whole = self._desk.whole(request)
        masks = self._desk.masks
        payload, unreadable = self._payload(letter)
        return LetterReport(
            **self._line(letter, whole),
            queue=queue,
            headers=masks.headers(letter.headers, whole=whole),
            content_type=letter.content_type,
            content_encoding=letter.content_encoding,
            **body_fields(masks.body(payload, unreadable, letter.body, whole=whole)),
            story=_story(letter),
        )

    async def redrive(self, request: Request, queue: Name, given: RedriveRequest) -> JobReport:
        """To the queue that failed them, or `to` another, with a clean slate of attempts. A job
        does it. With a `canary`, so many go ahead alone, and the rest follows only if none of
        them dies again within `patience` seconds. A dry run only counts."""
        engine = self._desk.qc.dead_letters
        if given.to is not None:
            async with in_time():
                await self._desk.qc.admin.inspect(given.to)

        async def work(hear: Callable[[Redrive], object]) -> Redrive:
            return await engine.redrive(
                queue,
                where=given.where,
                limit=given.limit,
                rate=given.rate,
                canary=given.canary,
                patience=given.patience,
                dry_run=given.dry_run,
                to=given.to,
                on_progress=hear,
            )

        canary = "" if given.canary is None else f", {given.canary:,} of them ahead"
        target = "" if given.to is None else f" to {given.to}"
        what = f"Send back {given.words} from {queue}{target}{canary}"
        return await self._start(request, "redrive", queue, given, what, work)

    async def delete(self, request: Request, queue: Name, given: DeleteRequest) -> JobReport:
        """For good, by a job; the rest stays in its place. `confirm` repeats the queue."""
        confirmed(given.confirm, queue)
        engine = self._desk.qc.dead_letters

        async def work(hear: Callable[[Redrive], object]) -> Redrive:
            return await engine.delete(
                queue,
                where=given.where,
                limit=given.limit,
                dry_run=given.dry_run,
                on_progress=hear,
            )

        what = f"Delete {given.words} from {queue}"
        return await self._start(request, "delete", queue, given, what, work)

    async def _start(
        self, request: Request, kind: Kind, queue: str, given: Chosen, what: str, work: Work
    ) -> JobReport:
        desk = self._desk
        overview = await desk.lookout.overview()
        async with in_time():
            await desk.qc.admin.inspect(queue)
            await desk.qc.dead_letters.depth(queue)  # refuses a queue that has no place for them
        job = Job(
            kind=kind,
            queue=desk.dead_letter_queue(queue, overview) or queue,
            by=desk.by(request),
            what=what,
            dry_run=given.dry_run,
        )
        return JobReport.of(await desk.jobs.start(job, desk.access.who(request), work))

    def _line(self, letter: DeadMessage, whole: bool) -> dict[str, Any]:
        payload, unreadable = self._payload(letter)
        return {
            "id": letter.id,
            "event": letter.event,
            "key": letter.key,
            "timestamp": None,
            "size": len(letter.body),
            "preview": self._desk.masks.preview(payload, unreadable, whole=whole),
            "redeliveries": None,
            "attempt": letter.failures + 1,
            "fingerprint": letter.fingerprint,
            "error_type": letter.error_type,
            "error": letter.error,
            "reason": letter.reason,
            "failures": letter.failures,
            "failed_at": letter.failed_at,
        }

    def _payload(self, letter: DeadMessage) -> tuple[Any, str | None]:
        decode = self._desk.qc.codec.decoder()
        try:
            return decode(letter.body, letter.content_type, letter.content_encoding), None
        except (PayloadError, ConfigError) as error:
            return None, error.message


def chosen(
    group: str | None, error: str | None, event: str | None, ids: list[str] | None
) -> Filter | None:
    """A filter, unless all are meant."""
    if group is None and error is None and event is None and ids is None:
        return None
    return Filter(
        fingerprint=group,
        error=error,
        event=event,
        ids=None if ids is None else frozenset(ids),
    )


def _further(look: int, total: int) -> str:
    """Where one can be found that is not among the first so many."""
    if look >= LOOK:
        return "queuecraft dlq show, on the command line, looks at all of them"
    return f"look={min(total, LOOK)} looks further, which may take seconds"


def _story(letter: DeadMessage) -> Story:
    traceback: str = Excerpt(characters=65_536).of(letter.traceback)
    return Story(
        error_type=letter.error_type,
        error=letter.error,
        reason=letter.reason,
        traceback=traceback,
        failures=letter.failures,
        failed_at=letter.failed_at,
        original_queue=letter.queue,
        fingerprint=letter.fingerprint,
        attempts=_attempts(letter),
    )


def _attempts(letter: DeadMessage) -> list[Attempt]:
    """As far as the message tells; of one from elsewhere, the last alone."""
    if letter.attempts:
        return [
            Attempt(at=moment(each.at), attempt=each.attempt, error=each.error)
            for each in letter.attempts
        ]
    if not letter.failures:
        return []
    error = ": ".join(filter(None, (letter.error_type, letter.error))) or letter.reason
    return [Attempt(at=letter.failed_at, attempt=letter.failures, error=error)]
