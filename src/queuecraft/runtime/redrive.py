"""Sending dead letters back: once through the queue, in batches, and nothing lost on the way."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from queuecraft.clock import Clock
from queuecraft.codec.headers import trim
from queuecraft.drivers.base import (
    ACCEPTED,
    Delivery,
    Driver,
    Move,
    Receipt,
    Subscription,
    Unknown,
)
from queuecraft.failpoints import failpoint
from queuecraft.model.errors import ConnectionLost, QueueError
from queuecraft.runtime.dead_message import DeadMessage, Filter
from queuecraft.runtime.successor import redrive_of

BATCH = 100
LONGEST = 200  # bytes of one error: what a message says of itself may be of any size
WAIT = 0.5  # seconds for the next batch
SLOW = 10  # times to wait for it, where a consumer is given its share bit by bit
HELD = 1200.0  # seconds of one walk: what is held for 30 minutes, RabbitMQ takes back, all at once


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
    waiting: bool = False  # the canary is sent back; what becomes of it is not known yet
    stopped: str | None = None  # why it ended early: the canary, or no more could be had

    @property
    def done(self) -> bool:
        """Whether every dead letter there was at the start has been looked at."""
        return self.seen >= self.total


class Sweep:
    """One walk through what a queue held at the start. What is not taken out of it is back in its
    place at the end, in order, however the walk ends; what arrives meanwhile is for the next."""

    def __init__(
        self,
        subscription: Subscription,
        total: int,
        lost: Callable[[QueueError], None],
        *,
        partitioned: bool = False,
    ) -> None:
        self._subscription = subscription
        self._total = total
        self._lost = lost
        self._tries = SLOW if partitioned else 1
        self.starved = False
        """Whether it ended because nothing came any more, though not all had been seen."""
        self._left: dict[Delivery, None] = {}

    @property
    def held(self) -> int:
        """How many have come and are still in our hands."""
        return len(self._left)

    async def batches(self) -> AsyncIterator[Sequence[Delivery]]:
        """Everything, each once."""
        seen = tried = 0
        while seen < self._total:
            batch = await self._subscription.receive(min(BATCH, self._total - seen), WAIT)
            if not batch:
                tried += 1
                if tried == self._tries:
                    self.starved = True
                    return
                continue
            tried = 0
            seen += len(batch)
            self._left.update(dict.fromkeys(batch))
            yield batch

    async def move(self, moves: Sequence[Move]) -> Sequence[Receipt]:
        """Send some of them elsewhere."""
        receipts = await self._subscription.move(moves)
        for move, receipt in zip(moves, receipts, strict=True):
            if receipt is ACCEPTED:
                del self._left[move.delivery]
        return receipts

    async def forget(self, deliveries: Sequence[Delivery]) -> int:
        """Take some of them out for good; how many were no longer ours, and are still there."""
        stale = await self._subscription.ack(deliveries)
        for delivery in deliveries:
            del self._left[delivery]
        return len(stale)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.shield(asyncio.ensure_future(self._finish()))  # also when it is cancelled

    async def _finish(self) -> None:
        try:
            if self._left:
                await self._subscription.release(tuple(self._left))
        except ConnectionLost as error:
            self._lost(error)  # the broker gives everything back by itself
        finally:
            await self._subscription.close()


class Run:
    """One redrive under way: what moves, what stays, and how fast it goes."""

    def __init__(
        self,
        clock: Clock,
        *,
        state: Redrive,
        targets: set[str],
        where: Filter | None,
        owner: str | None,
        to: str | None,
        limit: int | None,
        rate: float | None,
        on_progress: Callable[[Redrive], object] | None,
        on_moved: Callable[[Move], object] | None = None,
        id: str | None = None,
    ) -> None:
        self.state = state
        self.id = id or f"redrive-{os.urandom(8).hex()}"
        """What tells the messages of this redrive from others, as their `x-replay-id`."""
        self._clock = clock
        self._targets = targets
        self._where = where
        self._owner = owner
        self._to = to
        self._limit = limit
        self._rate = rate
        self._on_progress = on_progress
        self._on_moved = on_moved
        self._next = clock.monotonic()
        self._until = 0.0  # the present walk may hold what it has met
        self._before = 0  # moved when it began
        self._late = False  # it has to give it up
        self._now = datetime.fromtimestamp(clock.now(), UTC)

    @property
    def full(self) -> bool:
        """Whether as many have moved as were asked for."""
        return self._limit is not None and self.state.moved >= self._limit

    def ahead(self, most: int, on_moved: Callable[[Move], object]) -> Run:
        """A run of the same redrive that sends the first few alone, and tells nobody but this."""
        return Run(
            self._clock,
            state=self.state,
            targets=self._targets,
            where=self._where,
            owner=self._owner,
            to=self._to,
            limit=most if self._limit is None else min(most, self._limit),
            rate=self._rate,
            on_progress=None,
            on_moved=on_moved,
            id=self.id,
        )

    def tell(self) -> None:
        """Say how far it has come to whoever asked."""
        if self._on_progress is not None:
            self._on_progress(self.state)

    async def walk(
        self,
        sweep: Callable[[int], Awaitable[Sweep]],
        judge: Callable[[Sweep], Awaitable[None]] | None = None,
    ) -> None:
        """Send back what is met on the way, until as many have moved as were asked for; with a
        sweep through as many as are left, and with another one when that has held them for long."""
        while True:
            self._until, self._before = self._clock.monotonic() + HELD, self.state.moved
            self._late = False
            async with await sweep(self.state.total - self._before) as held:
                async for batch in held.batches():
                    await self.drive(batch, held)
                    if self.full or self._late:
                        break
                if not self._late:
                    if judge is not None:
                        await judge(held)
                    return
            await self._turn()
            # What stays has to be looked at again, and is counted then.
            moved = self.state.moved
            self.state = replace(self.state, seen=moved, kept=0, refused=0, errors=())

    async def judge(self, sweep: Sweep, driver: Driver, queue: str) -> None:
        """Say so if a walk came to its end too early."""
        if (state := await judged(self.state, sweep, driver, queue)) is not self.state:
            self.state = state
            self.tell()

    async def rehearse(self, peeked: Sequence[Delivery]) -> None:
        """Count what would be sent back of these."""
        for start in range(0, len(peeked), BATCH):
            await self.drive(peeked[start : start + BATCH], None)

    async def drive(self, batch: Iterable[Delivery], sweep: Sweep | None) -> None:
        """Send a batch back, as far as it is meant; without a sweep, only count."""
        waiting = deque(batch)
        while waiting and not self.full:
            moves: list[Move] = []
            while waiting and self._room_beside(len(moves)):
                move = self._judge(waiting.popleft())
                if move is not None:
                    moves.append(move)
            if moves and sweep is not None:
                self._late = self._is_late()
                if self._late:
                    return
                await self._pace()
                await self._carry_out(sweep, moves)
            self.tell()

    def _is_late(self) -> bool:
        """Whether the next may move in another walk only. One in which nothing has moved goes on,
        however long it takes: the next would get no further."""
        late = max(self._clock.monotonic(), self._next) >= self._until
        return late and self.state.moved > self._before

    def _room_beside(self, chosen: int) -> bool:
        at_once = BATCH if self._rate is None else 1
        limit = self._limit
        return chosen < at_once and (limit is None or self.state.moved + chosen < limit)

    def _judge(self, delivery: Delivery) -> Move | None:
        """The move of a dead letter; None when it stays."""
        letter = DeadMessage.of(delivery)
        if not is_meant(letter, self._owner, self._where, self._now):
            self._count(kept=1)
            return None
        target = self._to or letter.queue
        if target is None or target not in self._targets:
            # The header may have been written by anyone: only queues that exist are targets.
            self._count(refused=1, error=f"{letter.id}: its queue {target!r} does not exist")
            return None
        if self.state.dry_run:
            self._count(moved=1)
            return None
        return Move(delivery, redrive_of(delivery, target, self._clock.now(), replay_id=self.id))

    async def _carry_out(self, sweep: Sweep, moves: Sequence[Move]) -> None:
        receipts = await sweep.move(moves)
        failpoint("redrive.after_move")
        lost: ConnectionLost | None = None
        for move, receipt in zip(moves, receipts, strict=True):
            error = getattr(receipt, "error", None)
            if receipt is ACCEPTED:
                self._count(moved=1)
                if self._on_moved is not None:
                    self._on_moved(move)
            elif isinstance(receipt, Unknown) and isinstance(error, ConnectionLost):
                lost = error
            else:
                self._count(refused=1, error=f"{move.delivery.sent.id}: {error}")
        if lost is not None:
            raise lost

    async def _pace(self) -> None:
        """Wait for the next turn, if there is a rate."""
        if self._rate is not None:
            now = self._clock.monotonic()
            await self._turn()
            self._next = max(self._next, now) + 1 / self._rate

    async def _turn(self) -> None:
        now = self._clock.monotonic()
        if self._next > now:
            await self._clock.sleep(self._next - now)

    def _count(self, *, error: str | None = None, **more: int) -> None:
        state = self.state
        changes: dict[str, Any] = {name: getattr(state, name) + by for name, by in more.items()}
        if error is not None and len(state.errors) < BATCH:
            changes["errors"] = (*state.errors, trim(error, LONGEST))
        self.state = replace(state, seen=state.seen + 1, **changes)


async def judged(state: Redrive, sweep: Sweep, driver: Driver, queue: str) -> Redrive:
    """How it stands at the end of a walk that is not closed yet: `stopped`, if the broker still has
    messages that it did not give out. What others have taken meanwhile is not missed."""
    if not sweep.starved:
        return state
    try:
        waiting = await driver.count(queue) or 0
    except ConnectionLost:
        raise
    except QueueError as error:
        return replace(state, stopped=_looked_at(state, error.message))
    if not driver.traits.tells_held:
        waiting -= sweep.held
    if waiting <= 0:
        return state
    what = "run it again"
    if driver.traits.partitioned and sweep.held:
        # It reads no further in a partition while too many before that are not done with.
        what += "; if that gets no further, move or delete the oldest first"
    return replace(state, stopped=_looked_at(state, what))


def _looked_at(state: Redrive, what: str) -> str:
    return f"only {state.seen:,} of {state.total:,} could be looked at; {what}"


def foretold(state: Redrive, limit: int | None) -> Redrive:
    """How it stands at the end of a dry run: `stopped`, if the broker showed less than there was.
    RabbitMQ lets nobody look further than 65,535 messages, nor wait long for one."""
    if state.done or (limit is not None and state.moved >= limit):
        return state
    stopped = f"only {state.seen:,} of {state.total:,} could be looked at"
    return replace(state, stopped=stopped)


def is_meant(letter: DeadMessage, owner: str | None, where: Filter | None, now: datetime) -> bool:
    """Whether a dead letter is one of those asked for: of the queue `owner`, if one is given,
    and of the filter."""
    if owner is not None and letter.queue != owner:
        return False
    return where is None or where.takes(letter, now)
