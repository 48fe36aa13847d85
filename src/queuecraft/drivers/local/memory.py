"""The queue in memory: fast, complete, and gone with the process."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from copy import copy
from itertools import islice
from typing import ClassVar

from queuecraft.clock import Clock, Timer
from queuecraft.drivers.base import (
    ACCEPTED,
    Binding,
    ConnectionLost,
    ConsumerInfo,
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
)
from queuecraft.drivers.local.exchanges import Exchanges
from queuecraft.drivers.local.inbox import Inbox
from queuecraft.drivers.local.refusals import check_same, homeless, let_down, no_queue, taken
from queuecraft.drivers.local.subscription import MemorySubscription
from queuecraft.drivers.notes import Notes

DUE_AT_ONCE = 1000  # delayed messages made ready before the loop gets its turn again


class MemoryDriver(Driver):
    """A broker inside the process. Closing and opening it again keeps its messages."""

    traits: ClassVar[Traits] = Traits(
        name="local",
        inline=True,
        priority=True,
        atomic_move=True,
        atomic_send=True,
        counts_redeliveries=True,
    )

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._now = self._clock.now
        self._exchanges = Exchanges[Inbox]()
        self._inboxes: dict[str, Inbox] = {}
        self._subscriptions: dict[MemorySubscription, None] = {}
        self._notes = Notes(self._now)
        self._open = False
        self._sequence = 0
        self._delayed: list[tuple[float, int, Inbox, Outgoing]] = []
        self._timer: Timer | None = None
        self._timer_due = float("inf")

    async def open(self) -> None:
        self._open = True
        self._arm()

    async def close(self) -> None:
        for subscription in list(self._subscriptions):
            await subscription.close()
        self._open = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def prepare(self, exchanges: Sequence[Exchange]) -> None:
        self._check_open()
        for exchange in exchanges:
            self._exchanges.declare(exchange)

    async def declare(self, queue: Queue) -> None:
        self._check_open()
        inbox = self._inboxes.get(queue.name)
        if inbox is not None:
            check_same(inbox.queue, queue)
        for binding in queue.bindings:  # what may be refused comes before the queue is made
            self._exchanges.declare(binding.exchange)
        if (dead := queue.dead_letters) is not None:
            self._exchanges.declare(Exchange(dead.exchange))
            kept = self._inboxes.setdefault(dead.queue, Inbox(Queue(dead.queue)))
            self._exchanges.bind(Binding(Exchange(dead.exchange), dead.routing_key), kept)
        if inbox is None:
            inbox = self._inboxes[queue.name] = Inbox(queue)
        elif queue.dead_letters is not None:
            inbox.queue = queue
        for binding in queue.bindings:
            self._exchanges.bind(binding, inbox)

    async def bind(self, queue: str, bindings: Sequence[Binding]) -> None:
        self._check_open()
        inbox = self._inbox(queue, "bind")
        for binding in bindings:  # all or none: what may be refused comes first
            self._exchanges.declare(binding.exchange)
        for binding in bindings:
            self._exchanges.bind(binding, inbox)

    async def unbind(self, queue: str, bindings: Sequence[Binding]) -> None:
        self._check_open()
        inbox = self._inbox(queue, "unbind")
        for binding in bindings:
            self._exchanges.unbind(binding, inbox)

    async def send(
        self, messages: Sequence[Outgoing], *, atomic: bool = False
    ) -> Sequence[Receipt]:
        self._check_open()
        if atomic and not all(self._targets(message) for message in messages):
            return [
                Rejected(let_down() if self._targets(message) else homeless(message))
                for message in messages
            ]
        receipts: list[Receipt] = []
        exchange = routing_key = ""
        targets: tuple[Inbox, ...] = ()
        repeatable = False
        for message in messages:
            # Batches are nearly always of one event: then its route is looked up once.
            if not (
                repeatable
                and message.routing_key is routing_key
                and message.exchange is exchange
                and message.queue is None
            ):
                targets = self._targets(message)
                exchange, routing_key = message.exchange, message.routing_key
                repeatable = message.queue is None and self._exchanges.by_key(exchange)
            if not targets:
                receipts.append(Rejected(homeless(message)))
                continue
            if message.due_at is None:
                for inbox in targets:
                    inbox.put(message)
            else:
                for inbox in targets:
                    self._put_later(inbox, message, message.due_at)
            receipts.append(ACCEPTED)
        return receipts

    async def subscribe(self, queue: Queue, *, prefetch: int) -> Subscription:
        self._check_open()
        inbox = self._inbox(queue.name, "subscribe")
        if inbox.queue.exclusive and any(each.inbox is inbox for each in self._subscriptions):
            raise taken(queue.name)
        subscription = MemorySubscription(self, inbox, prefetch, self._clock)
        self._subscriptions[subscription] = None
        return subscription

    async def topology(self) -> Topology:
        self._check_open()
        return Topology(
            exchanges=self._exchanges.all,
            queues=tuple(self._inboxes),
            bindings=tuple((binding, inbox.name) for binding, inbox in self._exchanges.bindings),
            consumers=tuple(
                ConsumerInfo(each.inbox.name, f"local-{number}", each.prefetch)
                for number, each in enumerate(self._subscriptions, 1)
            ),
            dead_letters=tuple(
                (inbox.name, target.queue)
                for inbox in self._inboxes.values()
                if (target := inbox.queue.dead_letters) is not None
            ),
        )

    async def inspect(self, queues: Sequence[str] | None = None) -> Sequence[QueueInfo]:
        self._check_open()
        names = list(self._inboxes) if queues is None else queues
        return [self._info(self._inboxes[name]) for name in names if name in self._inboxes]

    async def peek(self, queue: str, limit: int) -> Sequence[Delivery]:
        self._check_open()
        inbox = self._inbox(queue, "peek")
        # Copies: what is delivered later must not be settled by what was only looked at.
        return [copy(delivery) for delivery in islice(inbox, limit)]

    async def purge(self, queue: str) -> int:
        self._check_open()
        return self._inbox(queue, "purge").clear()

    async def delete(self, queue: str) -> None:
        self._check_open()
        inbox = self._inbox(queue, "delete")
        inbox.deleted = True
        inbox.clear()
        self._exchanges.forget(inbox)
        del self._inboxes[queue]
        for subscription in self._subscriptions:
            if subscription.inbox is inbox:
                subscription.look_again()

    async def announce(self, name: str, note: bytes, *, ttl: float) -> None:
        self._check_open()
        self._notes.put(name, note, until=self._now() + ttl)

    async def announced(self) -> Mapping[str, bytes] | None:
        self._check_open()
        return self._notes.up()

    # -- what subscriptions call ---------------------------------------------------------------

    def forget(self, subscription: MemorySubscription) -> None:
        """A subscription is closed; an auto-delete queue goes with its last one."""
        self._subscriptions.pop(subscription, None)
        inbox = subscription.inbox
        others = any(each.inbox is inbox for each in self._subscriptions)
        if inbox.queue.auto_delete and not others and not inbox.deleted:
            inbox.deleted = True
            self._exchanges.forget(inbox)
            self._inboxes.pop(inbox.name, None)

    # -- inside --------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if not self._open:
            raise ConnectionLost("the queue is closed; open it first", broker="local")

    def _inbox(self, name: str, operation: str) -> Inbox:
        inbox = self._inboxes.get(name)
        if inbox is None:
            raise no_queue(name, self._inboxes, operation)
        return inbox

    def _targets(self, message: Outgoing) -> tuple[Inbox, ...]:
        if message.queue is None:
            return self._exchanges.route(message)
        inbox = self._inboxes.get(message.queue)
        return () if inbox is None else (inbox,)

    def _info(self, inbox: Inbox) -> QueueInfo:
        target = inbox.queue.dead_letters
        dead = None if target is None else self._inboxes.get(target.queue)
        heads = [level[0].sent for level in (inbox.ready, *inbox.urgent.values()) if level]
        since = [sent.due_at or sent.timestamp for sent in heads]
        known = [when for when in since if when is not None]
        return QueueInfo(
            name=inbox.name,
            ready=len(inbox),
            in_flight=self._held(inbox),
            delayed=inbox.delayed,
            dead=None if dead is None else len(dead) + self._held(dead),
            consumers=sum(each.inbox is inbox for each in self._subscriptions),
            oldest_age=max(0.0, self._now() - min(known)) if known else None,
        )

    def _held(self, inbox: Inbox) -> int:
        return sum(len(each.held) for each in self._subscriptions if each.inbox is inbox)

    def _put_later(self, inbox: Inbox, message: Outgoing, due_at: float) -> None:
        if due_at <= self._now():
            inbox.put(message)
            return
        self._sequence += 1
        inbox.delayed += 1
        heapq.heappush(self._delayed, (due_at, self._sequence, inbox, message))
        if due_at < self._timer_due:
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_due = self._delayed[0][0] if self._delayed else float("inf")
        if self._delayed and self._open:
            self._timer = self._clock.call_later(self._timer_due - self._now(), self._make_ready)

    def _make_ready(self) -> None:
        now = self._now()
        for _ in range(DUE_AT_ONCE):
            if not self._delayed or self._delayed[0][0] > now:
                break
            _, _, inbox, message = heapq.heappop(self._delayed)
            inbox.delayed -= 1
            if not inbox.deleted:
                inbox.put(message)
        self._timer = None
        self._arm()
