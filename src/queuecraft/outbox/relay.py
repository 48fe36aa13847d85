"""From the table to the broker: in order, until it is confirmed, and only then deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from queuecraft.codec.reason import shorten
from queuecraft.drivers.base import Accepted, Driver, Receipt, Rejected, Unknown
from queuecraft.failpoints import failpoint
from queuecraft.model.envelope import Outgoing
from queuecraft.model.errors import (
    ConfigError,
    ConnectionLost,
    PayloadError,
    QueueError,
    Unroutable,
    UnsupportedFeature,
)
from queuecraft.model.policy import NoRetry, Retry
from queuecraft.model.queue import Exchange
from queuecraft.observers.log import printable
from queuecraft.outbox.database import Database, MissingFile
from queuecraft.outbox.executor import Executor
from queuecraft.outbox.lease import Lease
from queuecraft.outbox.row import Row
from queuecraft.outbox.table import OutboxTable
from queuecraft.runtime.engine import Engine
from queuecraft.runtime.facts import MessagesPublished

BATCH = 500  # rows read at once, at most
BATCH_BYTES = 4 * 2**20  # of which fewer are read from then on
MOST_HELD = 1000  # keys held back at once; with more, all wait
SHORTEST = 0.05  # seconds between two looks at an empty table, at first
UNANSWERED = 0.2  # seconds until a message is sent again that perhaps was stored
LONGEST = 30.0  # seconds between two tries when the database is away
OFTEN = 0.05  # seconds between two deletions, at least, amid a batch: each is a commit
GRACE = 5.0  # seconds for what is under way when the relay is to end


@dataclass(frozen=True, slots=True)
class Hold:
    """A key whose next message the broker has refused, for now."""

    attempts: int
    until: float


class Relay:
    """Reads messages from the table of an outbox, publishes and deletes them.

    Messages of one key fly one after the other, each when the one before is confirmed; those of
    other keys, and those without a key, fly together.
    """

    def __init__(
        self,
        engine: Engine,
        database: Database,
        table: OutboxTable,
        *,
        poll: float,
        retry: Retry | NoRetry,
    ) -> None:
        self._connection = engine.connection
        self._engine = engine
        self._log = engine.facts.log
        self._clock = engine.clock
        self._database = database
        self._table = table
        self._poll = poll
        self._retry = retry
        self._lease = Lease(database, table.name, engine.clock, self._log)
        self._held: dict[str | int, Hold] = {}
        self._done: set[int] = set()  # the broker has them, the table too
        self._aside: dict[int, str] = {}  # are to be kept aside
        self._written = 0.0
        self._batch = 32

    async def run(self, *, once: bool = False) -> None:
        """Relay until cancelled, or, with `once`, until nothing waits any more."""
        await self._check()
        pause = SHORTEST
        failures = 0
        async with self._lease.kept():
            while True:
                try:
                    moved = await self._round()
                    failures = 0
                    if once and not moved and not await self._waiting():
                        return
                except ConnectionLost:
                    if self._is_over:
                        raise
                    moved = False
                except QueueError:
                    raise
                except Exception as error:  # what a database may raise, nobody knows
                    failures += 1
                    pause = min(2.0 ** min(failures, 10) / 10, LONGEST)
                    said = first_line(error)
                    self._log.error(
                        "outbox: the database failed, next try in %g s: %s", pause, said
                    )
                    await self._clock.sleep(pause)
                    continue
                if moved:
                    pause = SHORTEST
                    continue
                await self._clock.sleep(self._nap(pause))
                pause = min(2 * pause, max(self._poll, SHORTEST))

    async def _check(self) -> None:
        try:
            await self._database.run(lambda on: self._table.read(on, 1))
        except QueueError:
            raise
        except MissingFile as error:  # which `queuecraft outbox create` would not make either
            raise ConfigError(str(error), operation="outbox") from None
        except Exception as error:
            raise QueueError(
                f"the outbox {self._table.name!r} cannot be read: {first_line(error)}; its "
                "tables are made by Outbox.create, or by queuecraft outbox create",
                operation="outbox",
            ) from error

    @property
    def _is_over(self) -> bool:
        return self._connection.state in ("closing", "closed")

    async def _waiting(self) -> int:
        return (await self._database.run(self._table.waiting))[0]

    def _nap(self, pause: float) -> float:
        """How long nothing is to be done."""
        if not self._lease.held:
            return min(self._lease.interval, max(pause, self._poll))
        now = self._clock.monotonic()
        return min([pause, *(hold.until - now for hold in self._held.values() if hold.until > now)])

    # -- one batch -----------------------------------------------------------------------------

    async def _round(self) -> bool:
        """Move what is there, as far as it may be moved; whether that was anything."""
        if not self._lease.held and not await self._lease.take():
            return False
        await self._write_down()
        now = self._clock.monotonic()
        held = [lane for lane, hold in self._held.items() if hold.until > now]
        if len(held) >= MOST_HELD:
            return False
        rows = await self._database.run(lambda on: self._table.read(on, self._batch, held))
        failpoint("outbox.after_read")
        if len(rows) < self._batch:  # all there are: others may have seen to what we held back
            there = {*held, *(row.lane for row in rows)}
            self._held = {lane: hold for lane, hold in self._held.items() if lane in there}
        self._size_up(rows)
        stuck: set[str | int] = set()
        try:
            for wave in _waves(rows):
                if not self._lease.held:
                    break
                flying = [row for row in wave if row.lane not in stuck]
                if flying:
                    stuck.update(await self._in_peace(flying))
        finally:
            await self._write_down()
        return bool(rows)

    def _size_up(self, rows: Sequence[Row]) -> None:
        """Read more next time, as long as they are small: all of them are held in memory."""
        size = sum(len(row.stored.message.body) for row in rows if row.stored is not None)
        if size > BATCH_BYTES:
            self._batch = max(1, self._batch // 4)
        elif size < BATCH_BYTES / 2 and len(rows) == self._batch:
            self._batch = min(2 * self._batch, BATCH)

    async def _in_peace(self, rows: Sequence[Row]) -> set[str | int]:
        """Fly; when the relay is to end meanwhile, the answer of the broker is waited for."""
        task = asyncio.ensure_future(self._fly(rows))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task], timeout=GRACE)
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
            if not task.cancelled():
                task.exception()
            raise

    async def _fly(self, rows: Sequence[Row]) -> set[str | int]:
        """Publish one message of each key; the keys that have to wait for another try."""
        now = self._clock.now()
        stuck: set[str | int] = set()
        ready: list[tuple[Row, Outgoing]] = []
        await self._ready()
        if not self._lease.held:  # it may have been waited for long
            return {row.lane for row in rows}
        refusals = await self._prepare(rows)
        for row in rows:
            stored = row.stored
            if stored is None:
                self._refuse(row, PayloadError("the row cannot be read"), stuck)
            elif stored.message.expires_at is not None and stored.message.expires_at <= now:
                self._done.add(row.position)
                self._held.pop(row.lane, None)
            elif error := self._unfit(row) or refusals.get(row.position):
                self._refuse(row, error, stuck)
            else:
                ready.append((row, stored.message))
        if ready:
            await self._send(ready, stuck)
        if self._clock.monotonic() - self._written > OFTEN:
            await self._write_down()
        return stuck

    async def _send(self, ready: Sequence[tuple[Row, Outgoing]], stuck: set[str | int]) -> None:
        answers = await self._answers([message for _, message in ready])
        failpoint("outbox.after_send")
        accepted: list[Outgoing] = []
        for (row, message), answer in zip(ready, answers, strict=True):
            if isinstance(answer, Accepted):
                accepted.append(message)
            elif isinstance(answer, Unknown) or isinstance(answer.error, ConnectionLost):
                self._hold(row.lane, 0, UNANSWERED, stuck)  # it flies again, before newer ones
                continue
            elif not (isinstance(answer.error, Unroutable) and self._may_drop(row)):
                self._refuse(row, answer.error, stuck)
                continue
            self._done.add(row.position)
            self._held.pop(row.lane, None)
        if accepted:
            self._tell(accepted)

    async def _answers(self, messages: Sequence[Outgoing]) -> Sequence[Receipt]:
        driver = await self._ready()
        try:
            receipts = await driver.send(messages)
        except ConnectionLost as error:
            self._connection.lost(driver, error)
            return [Unknown(error) for _ in messages]
        except Exception as error:  # refused as a whole: one by one, it shows who is to blame
            if len(messages) > 1:
                return [(await self._answers([each]))[0] for each in messages]
            if isinstance(error, QueueError):
                return [Rejected(error)]
            # Who knows what it did; if it is the message, it must not fly for ever.
            self._log.exception("outbox: the driver failed")
            return [Rejected(QueueError(f"the driver failed: {error!r}"))]
        for receipt in receipts:
            if not isinstance(receipt, Accepted) and isinstance(receipt.error, ConnectionLost):
                self._connection.lost(driver, receipt.error)
        return receipts

    async def _ready(self) -> Driver:
        """The open driver, waited for as long as it takes."""
        pause = SHORTEST
        while True:
            try:
                return await self._connection.ready()
            except ConnectionLost as error:
                if self._is_over:
                    raise
                pause = min(2 * pause, LONGEST)
                self._log.error("outbox: %s; next try in %g s", error.message, pause)
            await self._clock.sleep(pause)
            try:
                await self._connection.connect()
            except ConnectionLost:
                continue

    async def _prepare(self, rows: Iterable[Row]) -> dict[int, QueueError]:
        """Make the exchanges; which rows cannot be sent for want of one."""
        failed: dict[int, QueueError] = {}
        errors: dict[Exchange, QueueError | None] = {}
        for row in rows:
            exchange = None if row.stored is None else row.stored.exchange
            if exchange is None or self._unfit(row) or self._connection.prepared(exchange):
                continue
            if exchange not in errors:
                errors[exchange] = None
                try:
                    await self._connection.prepare(exchange)
                except ConnectionLost:
                    raise
                except QueueError as error:
                    errors[exchange] = error
                except Exception as error:  # the driver cannot even ask for it
                    errors[exchange] = ConfigError(
                        f"exchange {exchange.name!r} cannot be made: {error!r}"
                    )
            if (why := errors[exchange]) is not None:
                failed[row.position] = why
        return failed

    # -- what becomes of them ------------------------------------------------------------------

    def _unfit(self, row: Row) -> QueueError | None:
        """Why this broker can never take it, if so."""
        traits = self._connection.traits
        stored = row.stored
        if stored is not None and stored.message.priority and not traits.priority:
            return UnsupportedFeature("this broker has no priorities", broker=traits.name)
        if stored is not None and stored.exchange is not None:
            kind = stored.exchange.type
            if kind not in traits.exchange_types:
                return UnsupportedFeature(f"this broker has no {kind} exchanges")
        return None

    def _may_drop(self, row: Row) -> bool:
        assert row.stored is not None
        if row.stored.drop is None:
            return self._engine.settings.unroutable == "drop"
        return row.stored.drop

    def _refuse(self, row: Row, error: QueueError, stuck: set[str | int]) -> None:
        """Hold its key back for another try, or keep it aside."""
        lane = row.lane
        what = "a row" if row.stored is None else f"message {row.stored.message.id}"
        said = shorten(printable(error.message), 500)
        final = isinstance(error, (ConfigError, PayloadError, UnsupportedFeature))
        attempts = self._held[lane].attempts + 1 if lane in self._held else 1
        delay = None if final or isinstance(self._retry, NoRetry) else self._retry.delay(attempts)
        if delay is None:
            self._held.pop(lane, None)
            self._aside[row.position] = said
            self._log.error("outbox: %s is kept aside, it was refused: %s", printable(what), said)
            return
        self._hold(lane, 1, delay, stuck)
        self._log.warning(
            "outbox: %s was refused, next try in %g s: %s", printable(what), delay, said
        )

    def _hold(self, lane: str | int, failures: int, delay: float, stuck: set[str | int]) -> None:
        attempts = self._held[lane].attempts if lane in self._held else 0
        self._held[lane] = Hold(attempts + failures, self._clock.monotonic() + delay)
        stuck.add(lane)

    async def _write_down(self) -> None:
        """Delete what the broker has, and keep aside what it will not have."""
        if not self._done and not self._aside:
            return
        done, aside, now = sorted(self._done), list(self._aside.items()), self._clock.now()

        def write(on: Executor) -> None:
            if done:
                self._table.forget(on, done)
            if aside:
                self._table.set_aside(on, aside, now)
            failpoint("outbox.before_commit")

        await self._database.run(write)
        failpoint("outbox.after_commit")
        self._done.difference_update(done)
        for position, _ in aside:
            self._aside.pop(position, None)
        self._written = self._clock.monotonic()

    def _tell(self, accepted: Sequence[Outgoing]) -> None:
        publisher, facts = self._engine.publisher, self._engine.facts
        publisher.sent += len(accepted)
        publisher.last_success = self._clock.now()
        if facts.wants(MessagesPublished):
            # Not timed: they have waited in their table.
            facts.emit(MessagesPublished(messages=accepted))


def first_line(error: Exception) -> str:
    """What a database says went wrong; the rest may be the statement, with all that is in it."""
    return shorten(printable(str(error).partition("\n")[0]), 300) or type(error).__name__


def _waves(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """The first of each key, then the second of each, and so on.

    >>> rows = [Row(1, "a", None), Row(2, "a", None), Row(3, None, None), Row(4, None, None)]
    >>> [[row.position for row in wave] for wave in _waves(rows)]
    [[1, 3, 4], [2]]
    """
    left = list(rows)
    while left:
        lanes: set[str | int] = set()
        wave: list[Row] = []
        later: list[Row] = []
        for row in left:
            (later if row.lane in lanes else wave).append(row)
            lanes.add(row.lane)
        yield wave
        left = later
