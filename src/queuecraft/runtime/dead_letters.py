"""Dead letters: see what failed and why, and send it back when the cause is mended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TypeAlias

from queuecraft.clock import Clock
from queuecraft.drivers.base import Delivery, Driver, Queue, QueueInfo
from queuecraft.failpoints import failpoint
from queuecraft.model.errors import ConfigError, ConnectionLost, QueueError
from queuecraft.runtime.canary import Canary
from queuecraft.runtime.connection import Connection
from queuecraft.runtime.dead_message import DeadMessage, Filter
from queuecraft.runtime.failure_groups import TURN, FailureGroup, grouped
from queuecraft.runtime.redrive import Redrive, Run, Sweep, foretold, is_meant, judged

__all__ = ["DeadLetters", "DeadMessage", "FailureGroup", "Filter", "Redrive"]

LOOK = 10_000  # dead letters looked at for a list, unless its limit is higher
Groups: TypeAlias = list[FailureGroup]  # in the class, `list` is something else

HEAD = 200  # dead letters that any broker shows at once
NEAR = 2_000  # dead letters at the head, where the examples of groups are


@dataclass(frozen=True, slots=True)
class _Place:
    """An open driver, the dead-letter queue meant, and whose dead letters if it is shared."""

    driver: Driver
    queue: str
    owner: str | None
    lost: Callable[[QueueError], None]

    async def total(self) -> int:
        infos = await self.driver.inspect([self.queue])
        return infos[0].counted() if infos else 0

    async def others(self, *named: str) -> dict[str, QueueInfo]:
        """The other queues: those the broker tells of, and any that somebody names."""
        known = [*await self.driver.inspect(), *await self.driver.inspect(named)]
        return {info.name: info for info in known if info.name != self.queue}

    async def sweep(self, total: int, most: int | None = None) -> Sweep:
        """A walk through `total` of them; no more than `most` held at a time."""
        held = max(1, total if most is None else min(total, most))
        subscription = await self.driver.subscribe(Queue(self.queue), prefetch=held)
        partitioned = self.driver.traits.partitioned
        return Sweep(subscription, min(total, held), self.lost, partitioned=partitioned)


class DeadLetters:
    """The one engine behind the API, the command line and everything else that redrives.

    Queues are named by the work queue (`billing`) or by the dead-letter queue (`billing.dlq`).
    Where several work queues share a dead-letter queue, the name of one means its own alone.
    """

    def __init__(
        self, connection: Connection, clock: Clock, names: Callable[[str], str | None]
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._names = names

    async def list(
        self, queue: str, *, where: Filter | None = None, limit: int = 100, look: int = LOOK
    ) -> list[DeadMessage]:
        """Dead letters of a queue, oldest first, without taking them out. To find those of a filter
        it looks at the first 10,000 (`look`), or at `limit` if that is more."""
        _check_above_zero("list", limit=limit, look=look)
        async with self._look(queue) as place:
            chosen = where is not None or place.owner is not None
            peeked = await place.driver.peek(place.queue, max(limit, look) if chosen else limit)
        now = self._time()
        found: list[DeadMessage] = []
        for number, letter in enumerate(map(DeadMessage.of, peeked), 1):
            if is_meant(letter, place.owner, where, now):
                found.append(letter)
                if len(found) == limit:
                    break
            if number % TURN == 0:
                await asyncio.sleep(0)
        return found

    async def count(self, queue: str, *, look: int | None = None) -> int:
        """How many dead letters a queue has. Where several share a place for them, that takes a
        look at each; with `look`, only those among the first so many are counted."""
        _check_above_zero("count", look=look)
        async with self._look(queue) as place:
            total = await place.total()
            if place.owner is None:
                return total
            reach = total if look is None else min(total, look)
            peeked = await place.driver.peek(place.queue, reach)
        return sum(DeadMessage.of(each).queue == place.owner for each in peeked)

    async def depth(self, queue: str) -> int:
        """How many dead letters there are where those of a queue are, whosever they are."""
        async with self._look(queue) as place:
            return await place.total()

    async def find(self, queue: str, id: str, *, look: int | None = None) -> DeadMessage | None:
        """One dead letter by its id; None if it is not there, or not among the first `look`. All
        of them are looked at without it, which takes seconds where there are 100,000."""
        _check_above_zero("find", look=look)
        async with self._look(queue) as place:
            reach = await place.total()
            if look is not None:
                reach = min(reach, look)
            for step in sorted({min(HEAD, reach), min(NEAR, reach), reach} - {0}):
                for delivery in await place.driver.peek(place.queue, step):
                    if delivery.sent.id == id:
                        letter = DeadMessage.of(delivery)
                        if place.owner in (None, letter.queue):
                            return letter
        return None

    async def groups(self, queue: str, *, where: Filter | None = None, limit: int = LOOK) -> Groups:
        """What failed alike, the largest group first, among the first `limit` dead letters."""
        _check_above_zero("groups", limit=limit)
        async with self._look(queue) as place:
            peeked = await place.driver.peek(place.queue, limit)
        now = self._time()
        letters = map(DeadMessage.of, peeked)
        meant = (each for each in letters if is_meant(each, place.owner, where, now))
        return await grouped(meant, place.queue)

    async def purge(self, queue: str) -> int:
        """Forget all dead letters of a queue for good; says how many."""
        async with self._look(queue) as place:
            if place.owner is None:
                return await place.driver.purge(place.queue)
        return (await self.delete(queue)).moved

    async def delete(
        self,
        queue: str,
        *,
        where: Filter | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        on_progress: Callable[[Redrive], object] | None = None,
        on_chosen: Callable[[DeadMessage], object] | None = None,
    ) -> Redrive:
        """Forget dead letters for good: all of them or those of a filter, at most `limit`; `moved`
        says how many. A dry run only counts. `on_chosen` is called with each, before it is
        forgotten or instead.

        The rest stays in its place, in order, and however this is interrupted, nothing else is
        forgotten. `stopped` says so if the broker gave out no more before all were looked at, or
        has given some to another meanwhile; of a dry run, if it showed fewer than there are.
        """
        _check_above_zero("delete", limit=limit)
        async with self._look(queue) as place:
            total = await place.total()
            now = self._time()
            state = Redrive(total=total, dry_run=dry_run)
            stale = 0

            def choose(batch: Sequence[Delivery]) -> list[Delivery]:
                nonlocal state
                chosen: list[Delivery] = []
                seen = 0
                for each in batch:
                    if limit is not None and state.moved + len(chosen) >= limit:
                        break
                    seen += 1
                    letter = DeadMessage.of(each)
                    if is_meant(letter, place.owner, where, now):
                        chosen.append(each)
                        if on_chosen is not None:
                            on_chosen(letter)
                state = replace(
                    state,
                    seen=state.seen + seen,
                    moved=state.moved + len(chosen),
                    kept=state.kept + seen - len(chosen),
                )
                return chosen

            if dry_run:
                choose(await place.driver.peek(place.queue, total))
                state = foretold(state, limit)
                _tell(on_progress, state)
                return state
            async with await place.sweep(total) as sweep:
                async for batch in sweep.batches():
                    before = state
                    try:
                        missed = await sweep.forget(choose(batch))
                    except BaseException:
                        state = before
                        raise
                    stale += missed
                    state = replace(state, moved=state.moved - missed, kept=state.kept + missed)
                    _tell(on_progress, state)
                    if limit is not None and state.moved >= limit:
                        break
                state = await judged(state, sweep, place.driver, place.queue)
                if stale:
                    stopped = f"the broker has given {stale:,} to another meanwhile; run it again"
                    state = replace(state, stopped=stopped)
                if state.stopped is not None:
                    _tell(on_progress, state)
            return state

    async def redrive(
        self,
        queue: str,
        *,
        where: Filter | None = None,
        limit: int | None = None,
        rate: float | None = None,
        canary: int | None = None,
        patience: float = 30.0,
        dry_run: bool = False,
        to: str | None = None,
        on_progress: Callable[[Redrive], object] | None = None,
    ) -> Redrive:
        """Send dead letters back to the queue that failed them, with a clean slate of attempts.

        All of them or those of a filter, at most `limit`, at most `rate` a second; a dry run only
        counts. With a `canary`, so many go ahead alone, and the rest follows only if none of them
        dies again and nothing of them is seen to be under way after `patience` seconds at the
        latest; else `stopped` says why not. Where the broker cannot tell that they were handled,
        the whole patience is waited for one to die. `stopped` also says so if the broker gave out
        no more, or showed a dry run no more, before all were looked at.

        Cancel the task to stop it: what has moved has moved, the rest stays where it was.
        Interrupted in any other way, nothing is lost; the last batch of up to 100 messages, or
        with a rate the last message, may be sent twice.
        """
        _check_above_zero("redrive", limit=limit, rate=rate, canary=canary, patience=patience)
        async with self._look(queue) as place:
            others = await place.others(to or queue.removesuffix(".dlq"))
            if to == place.queue:
                raise ConfigError(f"the dead letters are in {to!r}; redrive them to another queue")
            if to is not None and to not in others:
                raise ConfigError(f"there is no queue {to!r} to redrive to")
            total = await place.total()
            run = Run(
                self._clock,
                state=Redrive(total=total, dry_run=dry_run),
                targets=set(others),
                where=where,
                owner=place.owner,
                to=to,
                limit=limit,
                rate=rate,
                on_progress=on_progress,
            )
            if dry_run:
                peeked = await place.driver.peek(place.queue, total)
                await run.rehearse(peeked)
                run.state = foretold(run.state, limit)
                run.tell()
                return run.state
            if canary is not None:
                await self._send_ahead(place, run, others, canary, patience)
                if run.state.stopped is not None or not run.state.moved or run.full:
                    return run.state
            judge = partial(run.judge, driver=place.driver, queue=place.queue)
            await run.walk(place.sweep, judge)
            return run.state

    async def _send_ahead(
        self,
        place: _Place,
        run: Run,
        others: dict[str, QueueInfo],
        size: int,
        patience: float,
    ) -> None:
        """Let the first few go alone, and see what becomes of them. They are taken out in a walk
        of their own: while it is waited for them, nothing is held."""
        held = await place.driver.inspect([place.queue])
        canary = Canary(
            place.driver,
            self._clock,
            before={**others, **{info.name: info for info in held}},
            source=place.queue,
            graves=self._grave_among({place.queue, *others}),
        )
        ahead = run.ahead(size, canary.note)
        total = run.state.total
        # Most often they are among the first; a filter may mean the last of all.
        judge = partial(ahead.judge, driver=place.driver, queue=place.queue)
        for most in sorted({min(total, size + NEAR), total}):
            await ahead.walk(partial(place.sweep, most=most), judge if most == total else None)
            if ahead.full or most == total:
                break
            moved = ahead.state.moved
            ahead.state = replace(run.state, seen=moved, moved=moved)
        moved = ahead.state.moved
        if not moved:
            run.state = ahead.state
            run.tell()
            return
        # What stays has to be looked at again, and is counted then.
        run.state = replace(run.state, seen=moved, moved=moved, waiting=True)
        run.tell()
        stopped = await canary.verdict(run.id, patience)
        run.state = replace(run.state, waiting=False, stopped=stopped)
        run.tell()
        failpoint("redrive.after_canary")

    @asynccontextmanager
    async def _look(self, queue: str) -> AsyncGenerator[_Place]:
        """The place where the dead letters of `queue` are; a connection lost there is reported."""
        driver = await self._connection.ready()

        def lost(error: QueueError) -> None:
            self._connection.lost(driver, error)

        try:
            known, usual = self._names(queue), f"{queue}.dlq"
            candidates = [name for name in dict.fromkeys((known, usual)) if name is not None]
            existing = {info.name for info in await driver.inspect(candidates)}
            for name in candidates:
                if name in existing:
                    owner = None if name in (queue, usual) else queue
                    yield _Place(driver, name, owner, lost)
                    return
        except ConnectionLost as error:
            lost(error)
            raise
        raise ConfigError(f"queue {queue!r} has no dead-letter queue; tried {usual!r}")

    def _grave_among(self, known: set[str]) -> Callable[[str], str | None]:
        """Which of the known queues holds the dead letters of another."""

        def grave(queue: str) -> str | None:
            candidates = (self._names(queue), f"{queue}.dlq")
            return next((each for each in candidates if each != queue and each in known), None)

        return grave

    def _time(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now(), UTC)


def _tell(on_progress: Callable[[Redrive], object] | None, state: Redrive) -> None:
    if on_progress is not None:
        on_progress(state)


def _check_above_zero(operation: str, **values: float | None) -> None:
    for name, value in values.items():
        if value is not None and not value > 0:
            raise ConfigError(f"{operation}({name}={value!r}): expected a number above 0")
