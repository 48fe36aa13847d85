"""Dead letters: see what failed and why, and send it back when the cause is mended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from queuecraft.clock import Clock
from queuecraft.codec.headers import (
    DEAD_LETTER,
    ERROR,
    ERROR_TYPE,
    FAILED_AT,
    ORIGINAL_QUEUE,
    ORIGINAL_ROUTING_KEY,
    REASON,
    RETRY_COUNT,
    TRACEBACK,
    count,
)
from queuecraft.drivers.base import (
    ACCEPTED,
    Delivery,
    Driver,
    Move,
    Queue,
    Subscription,
    Unknown,
)
from queuecraft.failpoints import failpoint
from queuecraft.model.errors import ConfigError, ConnectionLost
from queuecraft.model.fingerprint import fingerprint
from queuecraft.model.routing import topic_matches
from queuecraft.model.types import HeaderValue
from queuecraft.runtime.connection import Connection
from queuecraft.runtime.settle import redrive_of

BATCH = 100
LOOK = 10_000  # dead letters looked at by `list` and the like, unless told otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadMessage:
    """One dead letter: the message, and the story of its failure.

    >>> DeadMessage(id="m-1", queue="billing", event="order.placed", error_type="KeyError").queue
    'billing'
    """

    id: str
    queue: str | None
    event: str
    reason: str = ""
    error: str = ""
    error_type: str = ""
    traceback: str = ""
    failures: int = 0
    failed_at: datetime | None = None
    key: str | None = None
    body: bytes = b""
    content_type: str | None = None
    headers: Mapping[str, HeaderValue] = field(default_factory=dict)

    @classmethod
    def of(cls, delivery: Delivery) -> DeadMessage:
        """Read the story from the headers; whatever is missing or odd is left empty."""
        sent, headers = delivery.sent, delivery.sent.headers

        def text(name: str) -> str:
            value = headers.get(name, "")
            return value if isinstance(value, str) else ""

        when = headers.get(FAILED_AT)
        return cls(
            id=sent.id,
            queue=text(ORIGINAL_QUEUE) or None,
            event=text(ORIGINAL_ROUTING_KEY) or sent.routing_key,
            reason=text(REASON),
            error=text(ERROR),
            error_type=text(ERROR_TYPE),
            traceback=text(TRACEBACK),
            failures=count(headers, RETRY_COUNT),
            failed_at=_moment(when),
            key=sent.key,
            body=sent.body,
            content_type=sent.content_type,
            headers={name: value for name, value in headers.items() if name not in DEAD_LETTER},
        )

    @property
    def fingerprint(self) -> str:
        """The group of failures it belongs to."""
        return fingerprint(self.error_type or self.reason, self.error, self.traceback)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which dead letters are meant; what is left out does not matter.

    `error` is found in the error's type or text, `event` is a name or pattern, ages are seconds.

    >>> letter = DeadMessage(id="m-1", queue="billing", event="order.placed", error_type="KeyError")
    >>> Filter(error="key", event="order.*").takes(letter)
    True
    >>> Filter(event="user.*").takes(letter)
    False
    """

    error: str | None = None
    event: str | None = None
    reason: str | None = None
    fingerprint: str | None = None
    ids: frozenset[str] | None = None
    older_than: float | None = None
    newer_than: float | None = None

    def takes(self, letter: DeadMessage, now: datetime | None = None) -> bool:
        """Whether a dead letter is one of those meant."""
        if self.error is not None:
            text = f"{letter.error_type}: {letter.error}".casefold()
            if self.error.casefold() not in text:
                return False
        if self.event is not None and not topic_matches(self.event, letter.event):
            return False
        if self.reason is not None and self.reason != letter.reason:
            return False
        if self.fingerprint is not None and self.fingerprint != letter.fingerprint:
            return False
        if self.ids is not None and letter.id not in self.ids:
            return False
        if self.older_than is None and self.newer_than is None:
            return True
        if letter.failed_at is None:
            return False
        age = ((now or datetime.now(UTC)) - letter.failed_at) / timedelta(seconds=1)
        return not (
            (self.older_than is not None and age < self.older_than)
            or (self.newer_than is not None and age > self.newer_than)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """How far a redrive has come, or how it ended.

    >>> Redrive(total=10, seen=4, moved=3, kept=1).done
    False
    """

    total: int
    seen: int = 0
    moved: int = 0
    kept: int = 0  # not meant by the filter
    refused: int = 0  # their queue is unknown, or would not take them
    dry_run: bool = False
    errors: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        """Whether every dead letter there was at the start has been looked at."""
        return self.seen >= self.total


class DeadLetters:
    """The one engine behind the API, the command line and everything else that redrives.

    Queues are named by the work queue (`billing`) or by the dead-letter queue (`billing.dlq`).
    """

    def __init__(
        self, connection: Connection, clock: Clock, names: Callable[[str], str | None]
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._names = names

    async def list(
        self, queue: str, *, where: Filter | None = None, limit: int = 100
    ) -> list[DeadMessage]:
        """Dead letters of a queue, oldest first, without taking them out."""
        driver, name = await self._find(queue)
        found: list[DeadMessage] = []
        now = self._time()
        for delivery in await driver.peek(name, max(limit, LOOK)):
            letter = DeadMessage.of(delivery)
            if where is None or where.takes(letter, now):
                found.append(letter)
                if len(found) >= limit:
                    break
        return found

    async def count(self, queue: str) -> int:
        """How many dead letters a queue has."""
        driver, name = await self._find(queue)
        infos = await driver.inspect([name])
        return (infos[0].ready or 0) if infos else 0

    async def purge(self, queue: str) -> int:
        """Forget all dead letters of a queue for good; says how many."""
        driver, name = await self._find(queue)
        return await driver.purge(name)

    async def redrive(
        self,
        queue: str,
        *,
        where: Filter | None = None,
        limit: int | None = None,
        rate: float | None = None,
        dry_run: bool = False,
        to: str | None = None,
        on_progress: Callable[[Redrive], object] | None = None,
    ) -> Redrive:
        """Send dead letters back to the queue that failed them, with a clean slate of attempts.

        All of them or those of a filter, at most `limit`, at most `rate` a second; a dry run only
        counts. Cancel the task to stop it: what has moved has moved, the rest stays where it was.
        Interrupted in any other way, nothing is lost; the last message may be sent twice.
        """
        for name, value in (("limit", limit), ("rate", rate)):
            if value is not None and not value > 0:
                raise ConfigError(f"redrive({name}={value!r}): expected a number above 0")
        driver, source = await self._find(queue)
        known = {info.name for info in await driver.inspect()}
        if to is not None and to not in known:
            raise ConfigError(f"there is no queue {to!r} to redrive to")
        total = next((i.ready or 0 for i in await driver.inspect([source])), 0)
        run = _Run(self._clock, known, where, to, Redrive(total=total, dry_run=dry_run), rate)
        if dry_run:
            for delivery in await driver.peek(source, total):
                if limit is not None and run.state.moved >= limit:
                    break
                run.judge(delivery, self._time())
                run.tell(on_progress)
            return run.state
        subscription = await driver.subscribe(Queue(source), prefetch=max(total, 1))
        kept: list[Delivery] = []
        try:
            async for batch in _batches(subscription, total):
                room = None if limit is None else limit - run.state.moved
                chosen: list[Move] = []
                for delivery in batch:
                    full = room is not None and len(chosen) >= room
                    move = None if full else run.judge(delivery, self._time())
                    if move is None:
                        kept.append(delivery)
                    else:
                        chosen.append(move)
                for move in chosen:
                    await run.pace()
                    if not await run.carry_out(subscription, move):
                        kept.append(move.delivery)
                    run.tell(on_progress)
                if limit is not None and run.state.moved >= limit:
                    break
        except ConnectionLost as error:
            self._connection.lost(driver, error)
            raise
        finally:
            await _put_back(subscription, kept)
        return run.state

    async def _find(self, queue: str) -> tuple[Driver, str]:
        """The open driver and the name of the dead-letter queue meant."""
        driver = await self._connection.ready()
        candidates = (self._names(queue), f"{queue}.dlq", queue)
        existing = {info.name for info in await driver.inspect()}
        for name in candidates:
            if name is not None and name in existing and (name != queue or _is_dead(queue)):
                return driver, name
        raise ConfigError(f"queue {queue!r} has no dead-letter queue; tried {candidates[1]!r}")

    def _time(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now(), UTC)


class _Run:
    """One redrive under way."""

    def __init__(
        self,
        clock: Clock,
        known: set[str],
        where: Filter | None,
        to: str | None,
        state: Redrive,
        rate: float | None,
    ) -> None:
        self.state = state
        self._clock = clock
        self._known = known
        self._where = where
        self._to = to
        self._rate = rate
        self._next = clock.monotonic()

    def judge(self, delivery: Delivery, now: datetime) -> Move | None:
        """What to do with a dead letter: a move, or None when it stays."""
        letter = DeadMessage.of(delivery)
        if self._where is not None and not self._where.takes(letter, now):
            self._count(kept=1)
            return None
        target = self._to or letter.queue
        if target is None or target not in self._known:
            # The header may have been written by anyone: only queues that exist are targets.
            self._count(refused=1, error=f"{letter.id}: its queue {target!r} does not exist")
            return None
        if self.state.dry_run:
            self._count(moved=1)
            return None
        return Move(delivery, redrive_of(delivery, target, self._clock.now()))

    async def carry_out(self, subscription: Subscription, move: Move) -> bool:
        """Move one; False when it has to stay."""
        (receipt,) = await subscription.move([move])
        failpoint("redrive.after_move")
        if receipt is ACCEPTED:
            self._count(moved=1)
            return True
        error = getattr(receipt, "error", None)
        if isinstance(receipt, Unknown) and isinstance(error, ConnectionLost):
            raise error
        self._count(refused=1, error=f"{move.delivery.sent.id}: {error}")
        return False

    async def pace(self) -> None:
        """Wait for the next turn, if there is a rate."""
        if self._rate is not None:
            now = self._clock.monotonic()
            if self._next > now:
                await self._clock.sleep(self._next - now)
            self._next = max(self._next, now) + 1 / self._rate

    def tell(self, on_progress: Callable[[Redrive], object] | None) -> None:
        """Report how far it has come."""
        if on_progress is not None:
            on_progress(self.state)

    def _count(self, *, error: str | None = None, **more: int) -> None:
        state = self.state
        changes: dict[str, Any] = {name: getattr(state, name) + by for name, by in more.items()}
        if error is not None and len(state.errors) < BATCH:
            changes["errors"] = (*state.errors, error)
        self.state = replace(state, seen=state.seen + 1, **changes)


async def _batches(subscription: Subscription, total: int) -> AsyncIterator[Sequence[Delivery]]:
    """What was there at the start, each once; what arrives meanwhile is for the next time."""
    seen = 0
    while seen < total:
        batch = await subscription.receive(min(BATCH, total - seen), 0.5)
        if not batch:
            return
        seen += len(batch)
        yield batch


async def _put_back(subscription: Subscription, kept: Sequence[Delivery]) -> None:
    """Release what stays, also when the redrive is being cancelled; then let go."""

    async def finish() -> None:
        try:
            if kept:
                await subscription.release(kept)
        finally:
            await subscription.close()

    try:
        await asyncio.shield(asyncio.ensure_future(finish()))
    except ConnectionLost:
        return  # the broker gives everything back by itself


def _is_dead(queue: str) -> bool:
    return queue.endswith(".dlq")


def _moment(value: object) -> datetime | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return datetime.fromtimestamp(value / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
