"""The queue in a file, as a driver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import apsw

from queuecraft.clock import Clock
from queuecraft.drivers.base import (
    Binding,
    ConnectionLost,
    Delivery,
    Driver,
    Exchange,
    Outgoing,
    Queue,
    QueueInfo,
    Receipt,
    Rejected,
    Subscription,
    Topology,
    Traits,
    Unknown,
)
from queuecraft.drivers.local.refusals import taken
from queuecraft.drivers.local.sqlite import contents, leases, presence, session, storage
from queuecraft.drivers.local.sqlite.bell import Bell
from queuecraft.drivers.local.sqlite.catalogue import Catalogue
from queuecraft.drivers.local.sqlite.database import CommitUnknown, Database, value
from queuecraft.drivers.local.sqlite.schedule import Schedule
from queuecraft.drivers.local.sqlite.session import Session
from queuecraft.drivers.local.sqlite.shared import SharedFile
from queuecraft.drivers.local.sqlite.storage import Stored
from queuecraft.drivers.local.sqlite.subscription import SqliteSubscription, gone
from queuecraft.drivers.local.sqlite.suspects import Suspects
from queuecraft.drivers.local.sqlite.waiters import Waiters
from queuecraft.model.errors import PublishError, QueueError

R = TypeVar("R")

POLL: Final = 1.0  # seconds between looks at the file for what no bell has told


class SqliteDriver(Driver):
    """A broker in a file. Two connections, because a publish must be on the disk when it returns,
    and an ack need not be: a power cut may then cost a duplicate, never a message."""

    traits: ClassVar[Traits] = Traits(
        name="local",
        durable=True,
        key_order="group",
        priority=True,
        atomic_move=True,
        atomic_send=True,
        counts_redeliveries=True,
    )

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._now = self._clock.now
        self._database = Database(path)
        self._catalogue = Catalogue()
        self._bell = Bell(Path(f"{self._database.path}-wake"))
        self._suspects = Suspects(self._clock, self._bell)
        self._publishing: apsw.Connection | None = None
        self._consuming: apsw.Connection | None = None
        self._session: Session | None = None
        self._joining = asyncio.Lock()
        self._turn = asyncio.Lock()
        self._subscriptions: dict[SqliteSubscription, None] = {}
        self.waiters = Waiters()
        self._schedule = Schedule(self._clock, lambda: self._start(self._bring_forward()))
        self._poll_timer: asyncio.TimerHandle | None = None
        self._data_version = 0
        self._errands: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        await self.close()  # what was left open would be held by nobody, and looked after for ever
        self._joining, self._turn = asyncio.Lock(), asyncio.Lock()  # of this loop
        self._database = Database(self._database.path)
        self._publishing = self._database.connect(synchronous="FULL")
        self._consuming = self._database.connect(synchronous="NORMAL")
        self._bell.open()
        self._catalogue.forget()
        await contents.after_restart(self._database, self._consuming)

    async def close(self) -> None:
        ended, self._session = self._session, None
        if ended is not None:
            ended.stop()
        if self._poll_timer is not None:
            self._poll_timer.cancel()
        self._schedule.cancel()
        for errand in self._errands:
            errand.cancel()
        try:
            for subscription in list(self._subscriptions):
                await subscription.close()
            if ended is not None:
                await self.consume("leave", lambda c: session.bury(c, [ended.name]))
        except QueueError:
            pass  # the others find out that we are gone, and take over what we held
        finally:  # also when we are cancelled: what is left open would keep what it holds
            for subscription in list(self._subscriptions):
                subscription.cut()
            self._subscriptions.clear()
            self._bell.close()
            for connection in (self._publishing, self._consuming):
                if connection is not None:
                    self._database.disconnect(connection)
            self._publishing = self._consuming = None
            self._database.close()

    # -- what is declared ----------------------------------------------------------------------

    async def prepare(self, exchanges: Sequence[Exchange]) -> None:
        def work(connection: apsw.Connection) -> None:
            for exchange in exchanges:
                self._catalogue.declare_exchange(connection, exchange)

        await self._change("prepare", work)

    async def declare(self, queue: Queue) -> None:
        await self._change("declare", lambda c: self._catalogue.declare(c, queue))

    async def bind(self, queue: str, bindings: Sequence[Binding]) -> None:
        def work(connection: apsw.Connection) -> None:
            place = self._catalogue.find(queue, "bind")
            for binding in bindings:
                self._catalogue.bind(connection, binding, place)

        await self._change("bind", work)

    async def unbind(self, queue: str, bindings: Sequence[Binding]) -> None:
        def work(connection: apsw.Connection) -> None:
            place = self._catalogue.find(queue, "unbind")
            for binding in bindings:
                self._catalogue.unbind(connection, binding, place)

        await self._change("unbind", work)

    async def topology(self) -> Topology:
        await self._tidy()

        def work(_: apsw.Connection) -> Topology:
            exchanges = self._catalogue.exchanges
            places = self._catalogue.places.values()
            return Topology(
                exchanges=exchanges.all,
                queues=tuple(self._catalogue.places),
                bindings=tuple(
                    (binding, place.queue.name) for binding, place in exchanges.bindings
                ),
                consumers=tuple(each for place in places for each in place.consumers),
                dead_letters=tuple(
                    (place.queue.name, target.queue)
                    for place in places
                    if (target := place.queue.dead_letters) is not None
                ),
            )

        return self._look("topology", work)

    async def delete(self, queue: str) -> None:
        place = self._look("delete", lambda _: self._catalogue.find(queue, "delete"))

        def shut(connection: apsw.Connection) -> None:
            contents.shut(connection, place)
            self._catalogue.forget()

        def delete_some(connection: apsw.Connection) -> bool:
            known = self._catalogue.places.get(queue)
            if known is None or known.number != place.number:
                return False  # somebody else has deleted it, and its number may be another's now
            if contents.delete_some(connection, place):
                return True
            contents.shut(connection, place)  # again: somebody may have slipped in since
            contents.delete_rest(connection, place)
            self._catalogue.remove(connection, known)
            return False

        await self._change("delete", shut)
        while await self._change("delete", delete_some):  # noqa: ASYNC110  it is work, no waiting
            await asyncio.sleep(0)
        self.waiters.wake_all([place.number])
        for name in place.sessions:
            self._bell.ring(name, place.number)

    # -- messages ------------------------------------------------------------------------------

    async def send(
        self, messages: Sequence[Outgoing], *, atomic: bool = False
    ) -> Sequence[Receipt]:
        try:
            stored = await self._database.write(
                self._open(self._publishing),
                "send",
                lambda c: self.store(c, messages, atomic=atomic),
            )
        except CommitUnknown as error:
            return [Unknown(error)] * len(messages)
        except ConnectionLost as error:
            if isinstance(error.__cause__, apsw.FullError):  # so nothing is stored, for certain
                refused = PublishError(error.message, broker="local")
                refused.__cause__ = error.__cause__
                return [Rejected(refused)] * len(messages)
            raise
        self.stored(stored)
        return stored.receipts

    async def subscribe(self, queue: Queue, *, prefetch: int) -> Subscription:
        async with self._joining:
            own = self._session or await self._join()

        def work(connection: apsw.Connection) -> SqliteSubscription:
            if own.name not in session.known(connection):
                raise gone(queue.name)  # who would look after its messages if we died?
            place = self._catalogue.find(queue.name, "subscribe")
            for each in self._closed:
                if each.number == place.number:  # it would keep the queue from the new one
                    _remove(connection, each)
            if place.queue.exclusive and _is_consumed(connection, place.number):
                raise taken(queue.name)
            connection.execute(
                "INSERT INTO consumer (session, queue, prefetch, single) VALUES (?, ?, ?, ?)",
                (own.name, place.number, prefetch, queue.single_active),
            )
            number = connection.last_insert_rowid()
            return SqliteSubscription(self, place, number, prefetch, self._clock)

        subscription = await self._change("subscribe", work)
        self._catalogue.forget()
        self._subscriptions[subscription] = None
        self.waiters.wake(subscription.number)  # an older queue of this number was empty, perhaps
        self._look_ahead()
        return subscription

    async def inspect(self, queues: Sequence[str] | None = None) -> Sequence[QueueInfo]:
        await self._tidy()

        def work(connection: apsw.Connection) -> list[QueueInfo]:
            places = self._catalogue.places
            names = list(places) if queues is None else queues
            return [
                contents.info(connection, places[name], places, self._now())
                for name in names
                if name in places
            ]

        return self._look("inspect", work)

    async def peek(self, queue: str, limit: int) -> Sequence[Delivery]:
        await self._tidy()

        def work(connection: apsw.Connection) -> list[Delivery]:
            return contents.head(connection, self._catalogue.find(queue, "peek"), limit)

        return self._look("peek", work)

    async def purge(self, queue: str) -> int:
        await self._tidy()

        def ready(connection: apsw.Connection) -> int:
            place = self._catalogue.find(queue, "purge")
            return contents.ready(connection, place)

        def work(connection: apsw.Connection) -> int:
            self._catalogue.refresh(connection)
            place = self._catalogue.find(queue, "purge")
            return contents.purge_some(connection, place, total - purged)

        total, purged = self._look("purge", ready), 0
        while purged < total and (gone := await self.consume("purge", work)):
            purged += gone
            await asyncio.sleep(0)
        return purged

    # -- notes ---------------------------------------------------------------------------------

    async def announce(self, name: str, note: bytes, *, ttl: float) -> None:
        now = self._now()

        def work(connection: apsw.Connection) -> None:
            presence.put(connection, name, note, expires=now + ttl, now=now)

        await self.consume("announce", work)

    async def announced(self) -> Mapping[str, bytes] | None:
        return self._look("announced", lambda c: presence.up(c, self._now()))

    # -- what is kept beside the queues --------------------------------------------------------

    @property
    def file(self) -> SharedFile:
        """The file, for whoever keeps something of their own in it."""
        return SharedFile(self)

    def look(self, operation: str, work: Callable[[apsw.Connection], R]) -> R:
        """Read on one consistent view."""
        return self._look(operation, work)

    async def keep(self, operation: str, work: Callable[[apsw.Connection], R]) -> R:
        """A transaction that is on the disk when it returns."""
        return await self._database.write(self._open(self._publishing), operation, work)

    # -- what subscriptions call ---------------------------------------------------------------

    async def consume(self, operation: str, work: Callable[[apsw.Connection], R]) -> R:
        """A transaction that need not be on the disk when it returns."""
        return await self._database.write(self._open(self._consuming), operation, work)

    def store(
        self, connection: apsw.Connection, messages: Sequence[Outgoing], *, atomic: bool = False
    ) -> Stored:
        """Put messages where they belong, in a transaction of the caller's."""
        self._catalogue.refresh(connection)
        return storage.store(connection, self._catalogue, messages, self._now(), atomic=atomic)

    def stored(self, stored: Stored) -> None:
        """Messages have arrived: wake whoever waits for them."""
        if stored.arrived:
            self.tell(stored.arrived)
        if stored.delayed:
            self._ring(stored.delayed)
            if stored.next_due < self._schedule.due:
                self._schedule.set(stored.next_due, wanted=bool(self._subscriptions))

    def is_buried(self, connection: apsw.Connection) -> bool:
        """Whether others took this process for dead, and have what it held."""
        return self._session is None or self._session.name not in session.known(connection)

    async def claim(
        self, subscription: SqliteSubscription, limit: int
    ) -> tuple[list[leases.Claim], dict[int, int]]:
        """Messages for a subscription, with those that are due by now."""
        if self._schedule.due <= self._now():
            await self._bring_forward()
        elif self.waiters.is_empty(subscription.number):
            return [], {}

        def work(connection: apsw.Connection) -> tuple[list[leases.Claim], dict[int, int]]:
            self._catalogue.refresh(connection)
            place = self._catalogue.numbers.get(subscription.number)
            if place is not None and place.stands_by(subscription.consumer):
                return [], {}
            room = subscription.room(limit)
            claims, counts = subscription.claim(connection, room)
            if sum(len(each.rows) for each in claims) < room:
                self.waiters.found_empty(subscription.number)
            return claims, counts

        return await self.consume("claim", work)

    async def leave(self, subscription: SqliteSubscription) -> None:
        """A subscription is closed: what it held is ready again, and an auto-delete queue goes
        with its last one. Until that is in the file, it is tried again with every poll."""
        if subscription not in self._subscriptions:
            return

        def work(connection: apsw.Connection) -> int:
            if subscription not in self._subscriptions:
                return 0  # somebody else has waited for the same
            returned = _remove(connection, subscription)
            self._delete_abandoned(connection, {subscription.number})
            return returned

        subscription.leaving = True
        try:
            returned = await self._change("leave", work)
        finally:
            subscription.leaving = False
        self._subscriptions.pop(subscription, None)
        self._catalogue.forget()
        # One at least: a wake-up for us may be under way, its message is somebody else's now.
        self.tell({subscription.number: max(1, returned)})

    def refresh(self, connection: apsw.Connection) -> None:
        """Know who is there to be told, in a transaction of the caller's."""
        self._catalogue.refresh(connection)

    def tell(self, arrived: Mapping[int, int]) -> None:
        """So many messages are ready in these queues."""
        for number, count in arrived.items():
            self.waiters.wake(number, count)
        self._ring(arrived)

    # -- other processes -----------------------------------------------------------------------

    def _ring(self, numbers: Mapping[int, int] | set[int]) -> None:
        for number in numbers:
            place = self._catalogue.numbers.get(number)
            if place is not None:
                for name in place.sessions:
                    self._bell.ring(name, number)

    def _heard(self, numbers: set[int] | None) -> None:
        self.waiters.wake_all(numbers)
        self._look_ahead()

    async def _join(self) -> Session:
        """Become one of those that consume."""
        own = Session(self._database, self._now, self._bell.listen(self._heard))
        self._catalogue.session = own.name
        self._catalogue.forget()

        await self._change("join", own.begin)
        self._session = own
        own.start()
        self._poll_timer = asyncio.get_running_loop().call_later(POLL, self._poll)
        await self._bury(self._missing())
        return own

    def _poll(self) -> None:
        """What no bell has told: the loop turns, others have died or written, messages are due.
        And what waits to be told to the file."""
        if self._session is None or self._consuming is None:
            return
        self._poll_timer = asyncio.get_running_loop().call_later(POLL, self._poll)
        self._session.turned()
        for each in self._closed:
            if not each.leaving:
                self._start(self.leave(each))
        try:
            if missing := self._missing():
                self._start(self._bury(missing))
            contents.shrink(self._database, self._consuming)
            version = value(self._consuming, "PRAGMA data_version")
        except (QueueError, apsw.Error):
            return  # whoever uses the connection next meets the same, and can say so
        if version != self._data_version:
            self._data_version = version
            self.waiters.wake_all()
            self._look_ahead()

    @property
    def _closed(self) -> list[SqliteSubscription]:
        """Those that are closed, and not gone from the file yet."""
        return [each for each in self._subscriptions if each.closed]

    def _missing(self) -> set[str]:
        """Sessions that are dead, or silent for too long."""
        own = self._catalogue.session
        known = self._look("poll", session.known)
        return self._suspects.missing(known, own)

    async def _tidy(self) -> None:
        """Before somebody looks: the dead hold nothing, and what is due is ready. Where nothing
        can be written, on a full disk, they see what there is."""
        try:
            await self._bury(self._missing())
            await self._bring_forward()
        except QueueError:
            self._open(self._consuming)

    async def _bury(self, names: set[str]) -> None:
        if not names:
            return

        def work(connection: apsw.Connection) -> dict[int, int]:
            returned = session.bury(connection, names)
            self._delete_abandoned(connection, set(returned))
            return returned

        returned = await self._change("bury", work)
        self._catalogue.forget()
        self.tell(returned)  # also to those we have just buried: they may only have been slow
        for name in names:
            self._bell.clear(name)

    def _delete_abandoned(self, connection: apsw.Connection, numbers: set[int]) -> None:
        for number in numbers:
            place = self._catalogue.numbers.get(number)
            if place is None or not place.queue.auto_delete or _is_consumed(connection, number):
                continue
            contents.shut(connection, place)
            contents.delete_rest(connection, place)
            self._catalogue.remove(connection, place)

    # -- time ----------------------------------------------------------------------------------

    async def _bring_forward(self) -> None:
        """Make everything ready that is due by now. What falls due meanwhile is for the next to
        come: there might be no end of it."""
        now = self._now()
        while self._look("due", storage.next_due) <= now:
            async with self._turn:  # of the loop: one batch in each, however many are at it
                await asyncio.sleep(0)
            stored = await self.consume("due", lambda c: storage.bring_forward(c, now))
            self.tell(stored.arrived)
        self._look_ahead()

    def _look_ahead(self) -> None:
        """Be woken when the next delayed message is due."""
        try:
            due = self._look("due", storage.next_due)
        except QueueError:
            return  # the poll comes round again
        self._schedule.set(due, wanted=bool(self._subscriptions))

    # -- inside --------------------------------------------------------------------------------

    def _open(self, connection: apsw.Connection | None) -> apsw.Connection:
        if connection is None:
            raise ConnectionLost("the queue is closed; open it first", broker="local")
        return connection

    def _look(self, operation: str, work: Callable[[apsw.Connection], R]) -> R:
        """Read, knowing what is declared."""

        def refreshed(connection: apsw.Connection) -> R:
            self._catalogue.refresh(connection)
            return work(connection)

        return self._database.read(self._open(self._consuming), operation, refreshed)

    async def _change(self, operation: str, work: Callable[[apsw.Connection], R]) -> R:
        """Change what is declared, durably, and let all processes know if anything was written."""

        def tracked(connection: apsw.Connection) -> R:
            self._catalogue.refresh(connection)
            before = connection.total_changes()
            result = work(connection)
            if connection.total_changes() > before:
                self._catalogue.changed(connection)
            return result

        try:
            return await self._database.write(self._open(self._publishing), operation, tracked)
        except BaseException:
            self._catalogue.forget()  # it may remember what did not come to pass
            raise

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._quietly(work))
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)
        task.add_done_callback(lambda _: work.close())  # if it was cancelled before its first turn

    async def _quietly(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except QueueError:
            pass  # whoever uses the connection next meets the same, and can say so


def _remove(connection: apsw.Connection, subscription: SqliteSubscription) -> int:
    """Forget a consumer; how many messages it held."""
    returned = leases.give_back(connection, subscription.consumer)
    connection.execute("DELETE FROM consumer WHERE number = ?", (subscription.consumer,))
    return returned


def _is_consumed(connection: apsw.Connection, queue: int) -> bool:
    return value(connection, "SELECT 1 FROM consumer WHERE queue = ?", (queue,)) is not None
