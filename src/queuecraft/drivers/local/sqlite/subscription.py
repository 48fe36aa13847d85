"""A consumer of a queue in a file, and the deliveries it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING

import apsw

from queuecraft.clock import Clock
from queuecraft.drivers.base import (
    ACCEPTED,
    ConnectionLost,
    Delivery,
    Move,
    Outgoing,
    Receipt,
    Rejected,
    Subscription,
    stale,
)
from queuecraft.drivers.local.refusals import deleted
from queuecraft.drivers.local.sqlite import leases
from queuecraft.drivers.local.sqlite.catalogue import Place
from queuecraft.drivers.local.sqlite.record import decode
from queuecraft.drivers.local.sqlite.storage import Stored
from queuecraft.failpoints import failpoint

if TYPE_CHECKING:
    from queuecraft.drivers.local.sqlite.driver import SqliteDriver


class Lease:
    """A range of positions that is ours, and those in it that are not settled, in order."""

    __slots__ = ("first", "held")

    def __init__(self, first: int) -> None:
        self.first = first
        self.held: dict[int, None] = {}


class SqliteSubscription(Subscription):
    """One consumer. What it holds is written in the file, so that others can see to it when this
    process is gone; what is settled is checked against that: a lease that somebody else has ended
    is ours no more."""

    def __init__(
        self, driver: SqliteDriver, place: Place, consumer: int, prefetch: int, clock: Clock
    ) -> None:
        self.queue = place.queue
        self.number = place.number
        self.consumer = consumer
        self.held: dict[Delivery, Lease] = {}
        self.leases: dict[int, Lease] = {}
        self._bounds = place.first, place.last
        self._prefetch = prefetch
        self._driver = driver
        self._clock = clock
        self.closed = False
        self.leaving = False  # waits for its turn to tell the file
        self._waiting: asyncio.Future[None] | None = None

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        taken = await self._take(limit)
        if taken or wait <= 0:
            return taken
        deadline = self._clock.monotonic() + wait
        while True:
            await self._until_woken(wait)
            try:
                taken = await self._take(limit)
            except BaseException:
                self._driver.waiters.wake(self.number)  # for what has woken us
                raise
            if taken or (wait := deadline - self._clock.monotonic()) <= 0:
                return taken

    async def ack(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        failpoint("ack.before")
        if self.held.keys().isdisjoint(deliveries):
            return deliveries

        def work(connection: apsw.Connection) -> Batch:
            batch = Batch(connection, self, deliveries)
            batch.delete()
            return batch

        batch = await self._driver.consume("ack", work)
        batch.settled()
        self.look_again()
        return batch.stale

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        if self.held.keys().isdisjoint(deliveries):
            return

        def work(connection: apsw.Connection) -> Batch:
            self._driver.refresh(connection)
            batch = Batch(connection, self, deliveries)
            batch.free()
            return batch

        batch = await self._driver.consume("release", work)
        batch.settled()
        self.look_again()
        self._driver.tell({self.number: len(batch.ours)})

    async def send(self, messages: Sequence[Outgoing]) -> Sequence[Receipt]:
        return await self._driver.send(messages)

    async def move(self, moves: Sequence[Move]) -> Sequence[Receipt]:
        """In one transaction: the messages are in the one queue or in the other."""
        targets: dict[Delivery, Outgoing] = {}
        for move in moves:
            targets.setdefault(move.delivery, move.to)

        def work(connection: apsw.Connection) -> tuple[Batch, Stored]:
            batch = Batch(connection, self, list(targets))
            held = set(batch.ours)
            ours = [each for each in targets if each in held]  # in the order of the moves
            stored = self._driver.store(connection, [targets[each] for each in ours])
            answers.update(zip(ours, stored.receipts, strict=True))
            batch.keep({each for each in ours if answers[each] is not ACCEPTED})
            batch.delete()
            return batch, stored

        answers: dict[Delivery, Receipt] = {}
        batch, stored = await self._driver.consume("move", work)
        batch.settled()
        self._driver.stored(stored)
        self.look_again()
        failpoint("move.after_ack")
        receipts: list[Receipt] = []
        for move in moves:  # the same delivery twice can be moved but once
            receipt = answers.pop(move.delivery, None)
            receipts.append(Rejected(stale(move.delivery, "local")) if receipt is None else receipt)
        return receipts

    async def close(self) -> None:
        self.cut()
        await self._driver.leave(self)

    def cut(self) -> None:
        """Hold nothing any more; the file knows what that was."""
        self.closed = True
        self.held.clear()
        self.leases.clear()
        self.look_again()

    def look_again(self) -> None:
        """Let a `receive` that waits see what has changed."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    # -- receiving -----------------------------------------------------------------------------

    async def _take(self, limit: int) -> list[Delivery]:
        self._check_open()
        if self.room(limit) <= 0:
            return []
        claims, counts = await self._driver.claim(self, limit)
        return self._hold(claims, counts) if claims else []

    def room(self, limit: int) -> int:
        """How many more may be taken, at most `limit`."""
        return max(0, min(limit, self._prefetch - len(self.held)))

    def claim(
        self, connection: apsw.Connection, limit: int
    ) -> tuple[list[leases.Claim], dict[int, int]]:
        """Take messages, in a transaction; and how often some of them were delivered before."""
        self._check_open()
        known = connection.execute(
            "SELECT 1 FROM consumer WHERE number = ?", (self.consumer,)
        ).fetchone()
        if known is None:
            buried = self._driver.is_buried(connection)
            raise gone(self.queue.name) if buried else deleted(self.queue.name)
        claims = leases.claim(connection, self.consumer, *self._bounds, limit)
        if not claims:
            return claims, {}
        return claims, leases.redeliveries(connection, claims[0].first, claims[-1].last)

    def _hold(self, claims: Sequence[leases.Claim], counts: dict[int, int]) -> list[Delivery]:
        queue = self.queue.name
        taken: list[Delivery] = []
        for claim in claims:
            if claim.extends is not None:
                lease = self.leases[claim.extends]
            else:
                lease = self.leases[claim.first] = Lease(claim.first)
            got = [
                Delivery(decode(data, position), queue, counts.get(position, 0), position)
                for position, data in claim.rows
            ]
            lease.held.update(dict.fromkeys(position for position, _ in claim.rows))
            self.held.update(zip(got, repeat(lease)))
            taken += got
        return taken

    async def _until_woken(self, wait: float) -> None:
        waiters = self._driver.waiters
        if self.room(1):
            future = waiters.join(self.number)
        else:  # a wake-up would be lost on us
            future = asyncio.get_running_loop().create_future()
        self._waiting = future
        timer = self._clock.call_later(wait, self.look_again)
        try:
            await future
        except asyncio.CancelledError:
            if not future.cancelled():
                waiters.wake(self.number)  # it was for a message that somebody else may have now
            raise
        finally:
            timer.cancel()
            self._waiting = None
            waiters.leave(self.number, future)

    def _check_open(self) -> None:
        if self.closed:
            raise ConnectionLost("the subscription is closed", broker="local")


def gone(queue: str) -> ConnectionLost:
    """A consumer is not known to the file any more."""
    return ConnectionLost(
        "the process stood still for so long that others have taken over what it held",
        broker="local",
        queue=queue,
    )


class Batch:
    """Deliveries that are settled together: in the file, within a transaction, and once that has
    come to its end, in memory. What the file says is not ours any more is stale."""

    def __init__(
        self,
        connection: apsw.Connection,
        subscription: SqliteSubscription,
        deliveries: Sequence[Delivery],
    ) -> None:
        self.stale: list[Delivery] = []
        self._connection = connection
        self._subscription = subscription
        self._lost: list[Delivery] = []  # held in memory, but not in the file
        self._ours: dict[Lease, list[Delivery]] = {}
        self._runs: dict[Lease, list[tuple[int, int]]] = {}
        held, ours = subscription.held, self._ours
        for delivery in dict.fromkeys(deliveries):
            lease = held.get(delivery)
            if lease is None:
                self.stale.append(delivery)
            elif lease in ours:
                ours[lease].append(delivery)
            else:
                ours[lease] = [delivery]
        for lease in tuple(ours):
            if not leases.owned(connection, subscription.consumer, lease.first):
                self._lost += ours.pop(lease)
        self.stale += self._lost

    @property
    def ours(self) -> list[Delivery]:
        """What is to be settled."""
        return [each for deliveries in self._ours.values() for each in deliveries]

    def keep(self, kept: Collection[Delivery]) -> None:
        """Go on holding some of it."""
        if kept:
            for lease, deliveries in tuple(self._ours.items()):
                rest = [each for each in deliveries if each not in kept]
                self._ours[lease] = rest
                if not rest:
                    del self._ours[lease]

    def delete(self) -> None:
        """Take the messages out of the file."""
        connection = self._connection
        gone = 0
        for lease, deliveries in self._ours.items():
            positions = [each.token for each in deliveries]
            emptied = len(positions) == len(lease.held)
            if emptied or _is_head(positions, lease):
                connection.execute(
                    "DELETE FROM message WHERE position BETWEEN ? AND ?",
                    (lease.first, max(positions)),
                )
                gone += connection.changes()
            else:
                before = connection.total_changes()
                connection.executemany(
                    "DELETE FROM message WHERE position = ?", ((each,) for each in positions)
                )
                gone += connection.total_changes() - before
            if emptied:
                connection.execute("DELETE FROM lease WHERE first = ?", (lease.first,))
            if again := [(each.token,) for each in deliveries if each.redeliveries]:
                connection.executemany("DELETE FROM redelivery WHERE position = ?", again)
        if gone:
            connection.execute(
                "UPDATE counter SET stored = stored - ? WHERE queue = ?",
                (gone, self._subscription.number),
            )

    def free(self) -> None:
        """Let others have the messages: what is left of a lease becomes leases of its own."""
        consumer = self._subscription.consumer
        for lease, deliveries in self._ours.items():
            runs = self._runs[lease] = _runs(lease.held, {each.token for each in deliveries})
            leases.replace(self._connection, consumer, lease.first, runs)

    def settled(self) -> None:
        """The transaction is committed."""
        held, known = self._subscription.held, self._subscription.leases
        for delivery in self._lost:
            known.pop(held.pop(delivery).first, None)
        for lease, deliveries in self._ours.items():
            for delivery in deliveries:
                del held[delivery]
            if len(deliveries) == len(lease.held):
                del known[lease.first]
            else:
                for delivery in deliveries:
                    del lease.held[delivery.token]
        for lease, runs in self._runs.items():
            self._split(lease, runs)

    def _split(self, lease: Lease, runs: Sequence[tuple[int, int]]) -> None:
        """What is left of a lease belongs to those that have taken its place."""
        held, known = self._subscription.held, self._subscription.leases
        known.pop(lease.first, None)
        owners: dict[int, Lease] = {}
        for first, last in runs:
            part = known[first] = Lease(first)
            part.held = dict.fromkeys(each for each in lease.held if first <= each <= last)
            owners.update(dict.fromkeys(part.held, part))
        for delivery, owner in held.items():
            if owner is lease:
                held[delivery] = owners[delivery.token]


def _is_head(positions: Sequence[int], lease: Lease) -> bool:
    """Whether nothing that is held and not among them comes before the last of them."""
    settled, last = set(positions), max(positions)
    return next(each for each in lease.held if each not in settled) > last


def _runs(held: Iterable[int], freed: set[int]) -> list[tuple[int, int]]:
    """Ranges over what is held and not freed, with nothing freed inside them."""
    runs: list[tuple[int, int]] = []
    current: list[int] = []
    for position in (*held, None):
        if position is None or position in freed:
            if current:
                runs.append((current[0], current[-1]))
            current = []
        else:
            current.append(position)
    return runs
