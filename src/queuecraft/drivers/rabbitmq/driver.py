"""RabbitMQ, as a driver."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, ClassVar, Final

from pamqp import commands

from queuecraft.drivers.base import (
    ACCEPTED,
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
from queuecraft.drivers.rabbitmq import delays
from queuecraft.drivers.rabbitmq.address import Address
from queuecraft.drivers.rabbitmq.confirms import (
    CONFIRMED_WITHIN,
    OPEN,
    REFUSED,
    TAKEN,
    Flight,
    Parcel,
    Publishing,
)
from queuecraft.drivers.rabbitmq.consuming import Arrival, Consuming, glance
from queuecraft.drivers.rabbitmq.crashes import Crashes
from queuecraft.drivers.rabbitmq.envelope import is_counted, message_of, parcel
from queuecraft.drivers.rabbitmq.holding import look
from queuecraft.drivers.rabbitmq.inspection import Inspection
from queuecraft.drivers.rabbitmq.latecomers import Latecomers
from queuecraft.drivers.rabbitmq.login import log_in
from queuecraft.drivers.rabbitmq.management import Management
from queuecraft.drivers.rabbitmq.methods import QueueDeclare, QueueDelete, QueuePurge
from queuecraft.drivers.rabbitmq.presence import Noticeboard
from queuecraft.drivers.rabbitmq.refusals import LOCKED, refusable
from queuecraft.drivers.rabbitmq.subscription import RabbitSubscription
from queuecraft.drivers.rabbitmq.topology import Declarer, throwaway
from queuecraft.drivers.rabbitmq.wire import Closed, Wire
from queuecraft.drivers.target import Target
from queuecraft.model.credentials import Credentials
from queuecraft.model.errors import PublishError, QueueError, Unroutable

RELEASED: Final = 70_000
"""Ids of messages we gave back ourselves, so that it is not held against them: more than a consumer
can hold."""
TURN: Final = 200  # peeked messages that are decoded before others get their turn
ELECTION: Final = (0.05, 0.1, 0.2, 0.4, 0.8)  # seconds a level of delay may take for its leader
NOT_NOW: Final = Unknown(QueueError("a level of delay has no leader"))
LISTENED: Final[dict[str, Any]] = {"x-queue-type": "classic", "x-expires": 60_000}
"""Of a queue of replies: it goes a minute after nobody listens, so that who has lost its connection
finds there what has come meanwhile."""


class RabbitDriver(Driver):
    """One host. Two connections: a broker that is short of memory or disk stops reading from one
    that publishes, and acks must get through all the same."""

    traits: ClassVar[Traits] = Traits(
        name="rabbitmq",
        durable=True,
        key_order="group",
        priority=True,
        peek="marks",
        counts_redeliveries=True,
        returns_to="tail",
        delays_apart=True,
        max_delay=delays.LONGEST,
        keeps_notes=False,
        logs_missing=True,
    )

    def __init__(self, target: Target, address: Address) -> None:
        self._target = target
        self._address = address
        self._now = target.clock.now
        self._publishing: Publishing | None = None
        self._consuming: Wire | None = None
        self._declarer: Declarer | None = None
        self._inspection: Inspection | None = None
        self._board: Noticeboard | None = None
        self._latecomers: Latecomers | None = None
        self._subscriptions: dict[RabbitSubscription, None] = {}
        self._queues: dict[str, Queue] = {}
        self._exchanges: dict[str, Exchange] = {}
        self._released: dict[str, None] = {}

    async def open(self) -> None:
        await self.close()
        credentials = await self._target.credentials() or self._address.nobody
        publishing = await self._log_in(credentials, "publish")
        # Not sooner for one who is quick to give up a publish: the others would lose theirs.
        patience = max(CONFIRMED_WITHIN, self._target.settings.publish_timeout)
        channel = Publishing(publishing, patience=patience, clock=self._target.clock)
        try:
            await channel.open()
            self._consuming = await self._log_in(credentials, "consume")
        except BaseException:
            publishing.abort(ConnectionLost("not needed", broker="rabbitmq"))
            raise
        self._publishing = channel
        self._board = Noticeboard(publishing, self._consuming, self._now)
        self._declarer = Declarer(self._consuming, self._address.declaring)
        self._latecomers = Latecomers(self._consuming, self.send_parcels, self._target.clock)
        self._inspection = Inspection(
            self._consuming,
            self._management(credentials),
            given=self._address.management is not None,
            queues=self._queues,
            exchanges=self._exchanges,
        )

    async def close(self) -> None:
        if self._latecomers is not None:
            await self._latecomers.finish()
        latecomers, self._latecomers = self._latecomers, None
        publishing, self._publishing = self._publishing, None
        consuming, self._consuming = self._consuming, None
        self._declarer = self._inspection = self._board = None
        for subscription in tuple(self._subscriptions):
            self.forget(subscription)
        for name in [each.name for each in self._queues.values() if each.exclusive]:
            del self._queues[name]  # it belongs to the connection
        wires = [publishing.wire] if publishing is not None else []
        if consuming is not None:
            wires.append(consuming)
        closing = [wire.close() for wire in wires]
        if latecomers is not None:
            closing.insert(0, latecomers.close())  # at once: a broker that is mute answers nobody
        await asyncio.gather(*closing)

    async def prepare(self, exchanges: Sequence[Exchange]) -> None:
        await self._topology().exchanges(exchanges)
        self._exchanges.update((each.name, each) for each in exchanges)

    async def declare(self, queue: Queue) -> None:
        await self._topology().queue(queue)
        self._queues[queue.name] = queue
        self._exchanges.update((each.exchange.name, each.exchange) for each in queue.bindings)
        self._look_for_latecomers(queue)
        if (dead := queue.dead_letters) is not None:
            self._queues.setdefault(dead.queue, Queue(dead.queue))
            self._exchanges.setdefault(dead.exchange, Exchange(dead.exchange))

    async def bind(self, queue: str, bindings: Sequence[Binding]) -> None:
        await self._topology().bind(queue, bindings)
        self._exchanges.update((each.exchange.name, each.exchange) for each in bindings)
        known = self._queues.get(queue) or Queue(queue)
        more = tuple(each for each in bindings if each not in known.bindings)
        self._queues[queue] = replace(known, bindings=known.bindings + more)
        self._look_for_latecomers(Queue(queue, bindings=tuple(bindings)))

    async def unbind(self, queue: str, bindings: Sequence[Binding]) -> None:
        await self._topology().unbind(queue, bindings)
        known = self._queues.get(queue)
        if known is not None:
            gone = {(each.exchange.name, each.pattern) for each in bindings}
            left = (b for b in known.bindings if (b.exchange.name, b.pattern) not in gone)
            self._queues[queue] = replace(known, bindings=tuple(left))

    async def send(
        self, messages: Sequence[Outgoing], *, atomic: bool = False
    ) -> Sequence[Receipt]:
        now = self._now()
        parcels: list[Parcel] = []
        receipts: list[Receipt | None] = []
        top = -1
        for message in messages:
            if message.queue is None:
                exchange, routing_key = message.exchange, message.routing_key
            else:
                exchange, routing_key = "", message.queue
            try:
                if message.due_at is not None and message.due_at > now:
                    destination = (
                        delays.to_exchange(exchange, routing_key)
                        if message.queue is None
                        else delays.to_queue(message.queue)
                    )
                    level, routing_key = delays.way(message.due_at - now, destination)
                    exchange = level.name
                    top = max(top, level.number)
                parcels.append(parcel(message, exchange, routing_key))
            except (ValueError, OverflowError) as error:
                receipts.append(Rejected(_unfit(message, error)))
            else:
                receipts.append(None)
        if top >= 0:
            await self._topology().delays(top)
        answered = await self._send_surely(parcels) if parcels else []
        if answered.count(ACCEPTED) == len(messages):
            return answered
        answers = iter(answered)
        return [
            _explained(message, next(answers)) if receipt is None else receipt
            for message, receipt in zip(messages, receipts, strict=True)
        ]

    async def subscribe(self, queue: Queue, *, prefetch: int) -> Subscription:
        channel = Consuming(self._wire())
        with refusable("subscribe", queue.name):
            await channel.consume(
                queue.name,
                prefetch=prefetch,
                exclusive=queue.exclusive,
                tag=f"queuecraft-{os.getpid()}-{os.urandom(4).hex()}",
            )
        known = self._queues.get(queue.name, queue)
        counting = not is_counted(known.arguments) and not queue.name.endswith(".dlq")
        subscription = RabbitSubscription(
            self,
            queue,
            channel,
            self._target.clock,
            counting=counting,
            keeping=queue.single_active or queue.auto_delete or known.auto_delete,
        )
        self._subscriptions[subscription] = None
        return subscription

    async def listen(self, address: str, *, prefetch: int) -> Subscription:
        # However queues are declared: nobody could have made this one beforehand.
        async with throwaway(self._wire()) as channel:
            with refusable("listen", address):
                ask = QueueDeclare(queue=address, durable=True, arguments=dict(LISTENED))
                await channel.ask(ask, commands.Queue.DeclareOk)
        return await self.subscribe(Queue(address, arguments=LISTENED), prefetch=prefetch)

    async def topology(self) -> Topology:
        return await self._look().topology()

    async def inspect(self, queues: Sequence[str] | None = None) -> Sequence[QueueInfo]:
        return await self._look().queues(queues)

    async def count(self, queue: str) -> int | None:
        # Without the management interface, which workers need not be able to reach.
        async with throwaway(self._wire()) as channel:
            try:
                return (await self._topology().exists(channel, queue, "count"))[0]
            except ConnectionLost:
                raise
            except QueueError:
                return None

    async def virtual_hosts(self) -> list[str]:
        """The names of the virtual hosts the user may see, by the management interface."""
        return await (await self._look().management()).virtual_hosts()

    async def make_virtual_host(self, name: str) -> None:
        """Make a virtual host, in which the user may do everything. Needs an administrator."""
        await (await self._look().management()).make_virtual_host(name)

    async def peek(self, queue: str, limit: int) -> Sequence[Delivery]:
        async with throwaway(self._wire()) as channel:
            ready, consumers = await self._topology().exists(channel, queue, "peek")
        wanted = min(limit, ready)
        if not wanted:
            return []
        # We must not be the last consumer of an auto-delete queue, but a consumer where another
        # keeps order: fetching would take from between what that one is given.
        brief = not consumers and await self._look().is_brief(queue)
        with refusable("peek", queue):
            seen = await self._first(queue, wanted, look if brief else glance)
        deliveries: list[Delivery] = []
        for number, arrival in enumerate(seen, 1):
            message, counted, noted = message_of(arrival, queue)
            deliveries.append(Delivery(message, queue, noted if counted is None else counted))
            if number % TURN == 0:
                await asyncio.sleep(0)
        return deliveries

    async def purge(self, queue: str) -> int:
        async with throwaway(self._wire()) as channel:
            await self._topology().exists(channel, queue, "purge")
            with refusable("purge", queue):
                answer = await channel.ask(QueuePurge(queue=queue), commands.Queue.PurgeOk)
        return answer.message_count or 0

    async def delete(self, queue: str) -> None:
        async with throwaway(self._wire()) as channel:
            await self._topology().exists(channel, queue, "delete")
            with refusable("delete", queue):
                await channel.ask(QueueDelete(queue=queue), commands.Queue.DeleteOk)
        self._queues.pop(queue, None)

    # -- notes ---------------------------------------------------------------------------------

    async def announce(self, name: str, note: bytes, *, ttl: float) -> None:
        await self._notices().put(name, note, ttl)

    async def announced(self) -> Mapping[str, bytes] | None:
        return await self._notices().up()

    # -- what subscriptions call ---------------------------------------------------------------

    async def send_parcels(self, parcels: Sequence[Parcel]) -> list[Receipt]:
        """Publish, and say what became of each."""
        if self._publishing is None:
            raise _closed()
        flight = await self._publishing.publish(parcels)
        if flight.states.count(TAKEN) == len(flight.states):
            return [ACCEPTED] * len(parcels)
        return [_receipt(flight, at, each) for at, each in enumerate(parcels)]

    @property
    def blocked(self) -> str | None:
        return None if self._publishing is None else self._publishing.wire.blocked

    def released(self, ids: Iterable[str]) -> None:
        """We are giving these back: that they come again is no sign of a crash."""
        for each in ids:
            self._released[each] = None
        while len(self._released) > RELEASED:
            del self._released[next(iter(self._released))]

    def was_released(self, message_id: str) -> bool:
        """Whether it comes again because we gave it back."""
        return self._released.pop(message_id, self) is None

    def crashes(self, queue: str) -> Crashes:
        """The note beside an ordered queue."""
        return Crashes(self._wire(), self.send_parcels, queue)

    def forget(self, subscription: RabbitSubscription) -> None:
        """A subscription is closed; an auto-delete queue goes with its last one."""
        self._subscriptions.pop(subscription, None)
        name = subscription.queue.name
        known = self._queues.get(name)
        others = (each.queue.name for each in self._subscriptions)
        if known is not None and known.auto_delete and name not in others:
            del self._queues[name]

    # -- inside --------------------------------------------------------------------------------

    async def _first(
        self,
        queue: str,
        wanted: int,
        way: Callable[[Wire, str, int], AbstractAsyncContextManager[Consuming]],
    ) -> list[Arrival]:
        """The first messages of a queue, seen in one of two ways."""
        try:
            async with way(self._wire(), queue, wanted) as held:
                held.check_open()
                return list(held.arrivals)
        except Closed as error:
            if way is glance or error.code != LOCKED:
                raise
            # A quorum queue with a single active consumer, which stays without one.
            return await self._first(queue, wanted, glance)

    async def _send_surely(self, parcels: Sequence[Parcel]) -> list[Receipt]:
        """Publish; what a level of delay refuses, again. It is never full, but has no leader right
        after it was made and while one is elected: a retry must not end as a dead letter for it."""
        receipts = await self.send_parcels(parcels)
        for pause in ELECTION:
            refused = [at for at, receipt in enumerate(receipts) if receipt is NOT_NOW]
            if not refused:
                break
            await asyncio.sleep(pause)
            try:
                again = await self.send_parcels([parcels[at] for at in refused])
            except ConnectionLost as error:
                again = [Unknown(error)] * len(refused)
            for at, receipt in zip(refused, again, strict=True):
                receipts[at] = receipt
        return [Unknown(_leaderless()) if each is NOT_NOW else each for each in receipts]

    async def _log_in(self, credentials: Credentials, purpose: str) -> Wire:
        address = self._address
        return await log_in(
            address.host,
            address.port,
            virtual_host=address.virtual_host,
            credentials=credentials,
            heartbeat=self._target.settings.heartbeat,
            ssl=address.context(),
            name=f"queuecraft {purpose} {os.getpid()}",
        )

    def _wire(self) -> Wire:
        if self._consuming is None:
            raise _closed()
        return self._consuming

    def _topology(self) -> Declarer:
        if self._declarer is None:
            raise _closed()
        return self._declarer

    def _notices(self) -> Noticeboard:
        if self._board is None:
            raise _closed()
        return self._board

    def _look_for_latecomers(self, queue: Queue) -> None:
        if self._latecomers is not None:
            self._latecomers.look_for(queue)

    def _look(self) -> Inspection:
        if self._inspection is None:
            raise _closed()
        return self._inspection

    def _management(self, credentials: Credentials) -> Management | None:
        """The interface, unless there is none; one who came with a certificate has no password."""
        place = self._address.interface
        if place is None or not credentials.password:
            return None
        return Management(
            place,
            virtual_host=self._address.virtual_host,
            credentials=credentials,
            context=self._address.context(),
        )


def _closed() -> ConnectionLost:
    return ConnectionLost("not connected; open it first", broker="rabbitmq")


def _receipt(flight: Flight, at: int, parcel: Parcel) -> Receipt:
    state = flight.states[at]
    if state == TAKEN:
        return ACCEPTED
    if state == OPEN:
        return Unknown(flight.error or _closed())
    if state == REFUSED:
        unfit = flight.unfit.get(at)
        if unfit is None and parcel[0].startswith(delays.PREFIX):
            return NOT_NOW
        why = "the broker refused it; its queue may be full"
        why = why if unfit is None else f"RabbitMQ cannot carry it: {unfit}"
        return Rejected(PublishError(why, broker="rabbitmq"))
    exchange, routing_key, message_id, _, _ = parcel
    return Rejected(
        Unroutable(
            f"no queue is bound to event {routing_key!r} on exchange {exchange!r}; start a worker "
            "for it first, or publish with unroutable='drop'",
            broker="rabbitmq",
            message_id=message_id,
        )
    )


def _leaderless() -> PublishError:
    return PublishError(
        "the queues for delays have no leader; is a majority of the cluster up?",
        outcome="unknown",
        broker="rabbitmq",
    )


def _explained(message: Outgoing, receipt: Receipt) -> Receipt:
    """A message for one queue was not routed: there is no such queue."""
    if message.queue is None or not isinstance(receipt, Rejected):
        return receipt
    if not isinstance(receipt.error, Unroutable):
        return receipt
    missing = PublishError(
        "there is no such queue; start its worker first, or declare it",
        broker="rabbitmq",
        queue=message.queue,
        message_id=message.id,
    )
    return Rejected(missing)


def _unfit(message: Outgoing, error: Exception) -> PublishError:
    unfit = PublishError(
        f"RabbitMQ cannot carry it: {error}",
        broker="rabbitmq",
        queue=message.queue,
        message_id=message.id,
    )
    unfit.__cause__ = error
    return unfit
