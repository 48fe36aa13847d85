"""Dead letters: see what failed and why, and send it back when the cause is mended."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from queuecraft.clock import Clock
from queuecraft.drivers.base import Driver, Queue
from queuecraft.model.errors import ConfigError, ConnectionLost, QueueError
from queuecraft.runtime.connection import Connection
from queuecraft.runtime.dead_message import DeadMessage, Filter
from queuecraft.runtime.redrive import BATCH, Redrive, Run, Sweep, is_meant

__all__ = ["DeadLetters", "DeadMessage", "Filter", "Redrive"]

LOOK = 10_000  # dead letters looked at for a list, unless its limit is higher


@dataclass(frozen=True, slots=True)
class _Place:
    """An open driver, the dead-letter queue meant, and whose dead letters if it is shared."""

    driver: Driver
    queue: str
    owner: str | None
    lost: Callable[[QueueError], None]

    async def total(self) -> int:
        infos = await self.driver.inspect([self.queue])
        return (infos[0].ready or 0) if infos else 0

    async def targets(self, named: str) -> set[str]:
        """The queues it may be sent to: those the broker tells of, and one that somebody names."""
        known = [*await self.driver.inspect(), *await self.driver.inspect([named])]
        return {info.name for info in known} - {self.queue}

    async def sweep(self) -> Sweep:
        total = await self.total()
        subscription = await self.driver.subscribe(Queue(self.queue), prefetch=max(total, 1))
        return Sweep(subscription, total, self.lost)


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
        self, queue: str, *, where: Filter | None = None, limit: int = 100
    ) -> list[DeadMessage]:
        """Dead letters of a queue, oldest first, without taking them out. Looks at the first
        10,000, or at `limit` if that is more."""
        _check_above_zero("list", limit=limit)
        async with self._look(queue) as place:
            peeked = await place.driver.peek(place.queue, max(limit, LOOK))
        now = self._time()
        letters = map(DeadMessage.of, peeked)
        meant = (each for each in letters if is_meant(each, place.owner, where, now))
        return [letter for letter, _ in zip(meant, range(limit), strict=False)]

    async def count(self, queue: str) -> int:
        """How many dead letters a queue has."""
        async with self._look(queue) as place:
            total = await place.total()
            if place.owner is None:
                return total
            peeked = await place.driver.peek(place.queue, total)
        return sum(DeadMessage.of(each).queue == place.owner for each in peeked)

    async def purge(self, queue: str) -> int:
        """Forget all dead letters of a queue for good; says how many."""
        async with self._look(queue) as place:
            if place.owner is None:
                return await place.driver.purge(place.queue)
            forgotten = 0
            async with await place.sweep() as sweep:
                async for batch in sweep.batches():
                    its = [each for each in batch if DeadMessage.of(each).queue == place.owner]
                    await sweep.forget(its)
                    forgotten += len(its)
            return forgotten

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
        Interrupted in any other way, nothing is lost; the last batch of up to 100 messages, or
        with a rate the last message, may be sent twice.
        """
        _check_above_zero("redrive", limit=limit, rate=rate)
        async with self._look(queue) as place:
            targets = await place.targets(to or queue.removesuffix(".dlq"))
            if to is not None and to not in targets:
                raise ConfigError(f"there is no queue {to!r} to redrive to")
            total = await place.total()
            run = Run(
                self._clock,
                state=Redrive(total=total, dry_run=dry_run),
                targets=targets,
                where=where,
                owner=place.owner,
                to=to,
                limit=limit,
                rate=rate,
                on_progress=on_progress,
            )
            if dry_run:
                peeked = await place.driver.peek(place.queue, total)
                for start in range(0, len(peeked), BATCH):
                    await run.drive(peeked[start : start + BATCH], None)
                return run.state
            async with await place.sweep() as sweep:
                async for batch in sweep.batches():
                    await run.drive(batch, sweep)
                    if run.full:
                        break
            return run.state

    @asynccontextmanager
    async def _look(self, queue: str) -> AsyncGenerator[_Place]:
        """The place where the dead letters of `queue` are; a connection lost there is reported."""
        driver = await self._connection.ready()

        def lost(error: QueueError) -> None:
            self._connection.lost(driver, error)

        try:
            known, usual = self._names(queue), f"{queue}.dlq"
            candidates = [name for name in (known, usual) if name is not None]
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

    def _time(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now(), UTC)


def _check_above_zero(operation: str, **values: float | None) -> None:
    for name, value in values.items():
        if value is not None and not value > 0:
            raise ConfigError(f"{operation}({name}={value!r}): expected a number above 0")
