"""THE SEAM: what a broker must do for QueueCraft, and all that QueueCraft knows of a broker.

A driver knows one broker and nothing of retries, dead letters, codecs, metrics or reconnecting.
Everything is in batches, so that each broker's cheapest call can be used. The comments below are
the contract; `queuecraft.testing.conformance` holds every driver to it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from typing import ClassVar, Final, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from queuecraft.failpoints import failpoint
from queuecraft.model.envelope import NO_HEADERS, Delivery, Outgoing
from queuecraft.model.errors import AlreadySettled, ConnectionLost, QueueError
from queuecraft.model.naming import MAX_NAME
from queuecraft.model.queue import EXCHANGE_TYPES, Binding, Exchange, ExchangeType, Queue

__all__ = [
    "ACCEPTED",
    "NO_HEADERS",
    "Accepted",
    "Binding",
    "ConnectionLost",
    "ConsumerInfo",
    "Delivery",
    "Driver",
    "Exchange",
    "Gauge",
    "Move",
    "Outgoing",
    "Queue",
    "QueueInfo",
    "Receipt",
    "Rejected",
    "Rewinding",
    "Rewound",
    "Subscription",
    "Topology",
    "Traits",
    "Unknown",
    "VirtualHosts",
]


class Accepted(msgspec.Struct, frozen=True, gc=False, eq=False):
    """The broker has it, as durably as the broker keeps anything."""


class Rejected(msgspec.Struct, frozen=True, eq=False):
    """Certainly not stored. An event no queue is bound to is rejected with `Unroutable`."""

    error: QueueError


class Unknown(msgspec.Struct, frozen=True, eq=False):
    """Perhaps stored: the answer never came."""

    error: QueueError


Receipt: TypeAlias = Accepted | Rejected | Unknown
ACCEPTED: Final = Accepted()  # answer with this very object: it is compared by identity


class Move(msgspec.Struct, frozen=True, gc=False, eq=False):
    """Take a delivery out of its queue by sending `to` in its place."""

    delivery: Delivery
    to: Outgoing


def stale(delivery: Delivery, broker: str) -> AlreadySettled:
    """A delivery is to be moved that is not held any more."""
    return AlreadySettled(
        "the delivery is no longer held by this consumer",
        broker=broker,
        operation="move",
        queue=delivery.queue,
        message_id=delivery.sent.id,
    )


@dataclass(frozen=True, slots=True)
class Traits:
    """What a broker can do. What it cannot is refused before anything is sent."""

    name: str
    durable: bool = False  # survives the death of every process
    inline: bool = False  # send, ack, release and move finish without giving up the event loop
    competing: bool = True  # several consumers share one queue
    key_order: Literal["group", "worker", "none"] = "worker"  # how far `ordering="key"` reaches
    priority: bool = False
    peek: Literal["clean", "marks"] = "clean"  # "marks": peeking sets the redelivered flag
    replay: bool = False  # consumed messages can be read again
    atomic_move: bool = False  # a move can neither duplicate nor lose
    atomic_send: bool = False  # a batch is stored whole or not at all
    counts_redeliveries: bool = False
    returns_to: Literal["place", "tail"] = "place"  # where what a lost consumer held comes back
    partitioned: bool = False  # what has one key goes to one consumer; what has not, in any order
    tells_held: bool = True  # what consumers hold is told apart from what waits
    keeps_unrouted: bool = False  # an event is stored even if no queue is bound to it
    delays_apart: bool = False  # delayed messages wait outside their queue, and outlive it
    keeps_notes: bool = True  # `announced` tells what is up; else only what it has heard since
    logs_missing: bool = False  # asking for a queue that does not exist is an error in its log
    exchange_types: frozenset[ExchangeType] = frozenset(EXCHANGE_TYPES)
    max_name: int = MAX_NAME
    max_delay: float = inf  # seconds; more is rejected, because it would come early


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo:
    """The state of a queue. What the broker cannot tell is None, never guessed."""

    name: str
    ready: int | None = None  # due and waiting
    in_flight: int | None = None  # delivered, not yet settled
    delayed: int | None = None  # waiting for their time
    dead: int | None = None  # in its dead-letter queue
    consumers: int | None = None
    oldest_age: float | None = None  # seconds since the oldest ready message became due
    rates: Mapping[str, float] | None = None  # messages a second, by direction

    def counted(self) -> int:
        """How many are ready, for one who acts on it. Raises `QueueError` where the broker cannot
        tell: that is not none.

        >>> QueueInfo(name="billing", ready=3).counted()
        3
        """
        if self.ready is None:
            raise QueueError(
                f"the broker cannot tell how many messages are ready in queue {self.name!r}; "
                "try again when it can",
                queue=self.name,
            )
        return self.ready


@dataclass(frozen=True, slots=True)
class ConsumerInfo:
    """Somebody who receives from a queue."""

    queue: str
    name: str
    prefetch: int | None = None


@dataclass(frozen=True, slots=True)
class Topology:
    """What exists on the broker, as far as it tells."""

    exchanges: tuple[Exchange, ...] = ()
    queues: tuple[str, ...] = ()
    bindings: tuple[tuple[Binding, str], ...] = field(default=())  # (binding, queue)
    consumers: tuple[ConsumerInfo, ...] = ()
    dead_letters: tuple[tuple[str, str], ...] = ()  # (queue, the one its dead letters go to)


@dataclass(frozen=True, slots=True)
class Gauge:
    """A number that the client of a broker measures: what it is called, what it means."""

    name: str
    text: str
    labels: Mapping[str, str]
    value: float


class Driver(ABC):
    """One broker at one address. Building it does nothing; `open` may be called again after
    `close` or after a `ConnectionLost`, and starts afresh with no subscriptions.

    Any method may raise `ConnectionLost`. `send`, `move` and `ack` raise only if nothing was
    attempted; once something was, each item has its own answer.
    """

    traits: ClassVar[Traits]

    @abstractmethod
    async def open(self) -> None:
        """Connect. Raises `ConnectionLost` when the broker cannot be reached."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect. What subscriptions still hold goes back to its queues as redeliveries.
        Never raises for a connection that is already gone."""

    @property
    def blocked(self) -> str | None:
        """Why the broker takes no messages though the connection stands, if it says so."""
        return None

    def gauges(self) -> Sequence[Gauge]:
        """What the client of the broker measures, as of now, where it was asked to. May be called
        from any thread."""
        return ()

    async def announce(  # noqa: B027  not every broker has a place for it
        self, name: str, note: bytes, *, ttl: float
    ) -> None:
        """Put up a small note under a name, in place of an older one, for everybody who uses this
        broker with the same prefix; after `ttl` seconds it is gone. Notes are no messages: one may
        be lost, and none outlives its time. An empty note takes it down. Does nothing where there
        is no cheap place for it."""

    async def announced(self) -> Mapping[str, bytes] | None:
        """The notes that are up, by name; None where there is no place for them. The first call of
        a driver may find only what is put up after it."""
        return None

    @abstractmethod
    async def prepare(self, exchanges: Sequence[Exchange]) -> None:
        """Make what a publisher needs: exchanges or topics, never queues. Idempotent."""

    @abstractmethod
    async def declare(self, queue: Queue) -> None:
        """Make the queue, its exchanges and bindings, and its dead-letter queue. Idempotent,
        only adds; bindings are durable state and outlive every consumer. Raises
        `TopologyMismatch` when something exists with other properties."""

    @abstractmethod
    async def bind(self, queue: str, bindings: Sequence[Binding]) -> None:
        """Bind an existing queue to more, making the exchanges. Idempotent, and as durable as
        the bindings of `declare`. Raises `QueueError` when there is no such queue,
        `TopologyMismatch` when an exchange exists with other properties."""

    @abstractmethod
    async def unbind(self, queue: str, bindings: Sequence[Binding]) -> None:
        """Take bindings from an existing queue: those of the same exchange name, pattern and
        headers. What is not bound is ignored; exchanges, other bindings and messages stay."""

    @abstractmethod
    async def send(
        self, messages: Sequence[Outgoing], *, atomic: bool = False
    ) -> Sequence[Receipt]:
        """Store the messages, in order, and answer for each. `due_at` in the future delays, and
        is never early. An exchange fans out to every queue bound to it at this moment. With
        `atomic`, asked for only where the trait `atomic_send` is set: all of them or none."""

    @abstractmethod
    async def subscribe(self, queue: Queue, *, prefetch: int) -> Subscription:
        """Start receiving, with at most `prefetch` deliveries held and not settled."""

    async def listen(self, address: str, *, prefetch: int) -> Subscription:
        """Start receiving the replies that are sent to a queue of this name, making it. Nobody else
        receives from it, and when nobody does any more, it goes with all that is in it: at once or
        within minutes, whatever has become of the process. Another `listen` after a lost connection
        may find what has come meanwhile. Override it where queues of this kind are too dear."""
        queue: Queue = Queue(address, auto_delete=True)
        await self.declare(queue)
        return await self.subscribe(queue, prefetch=prefetch)

    @abstractmethod
    async def topology(self) -> Topology:
        """Exchanges, queues, bindings and consumers, as far as the broker tells."""

    @abstractmethod
    async def inspect(self, queues: Sequence[str] | None = None) -> Sequence[QueueInfo]:
        """The state of the named queues, or of all; a queue that does not exist is left out."""

    async def count(self, queue: str) -> int | None:
        """How many messages are ready in a queue; None if there is no such queue. Raises where that
        cannot be told. Asked every few seconds: override it where `inspect` is dear."""
        for info in await self.inspect([queue]):
            return info.counted()
        return None

    @abstractmethod
    async def peek(self, queue: str, limit: int) -> Sequence[Delivery]:
        """The next messages, without taking them; they cannot be settled."""

    @abstractmethod
    async def purge(self, queue: str) -> int:
        """Forget what is ready, and say how many; in-flight and delayed messages stay."""

    @abstractmethod
    async def delete(self, queue: str) -> None:
        """Remove the queue with its bindings and messages. Its dead-letter queue stays."""


@runtime_checkable
class VirtualHosts(Protocol):
    """A driver whose broker is divided into virtual hosts, one of which it is connected to."""

    async def virtual_hosts(self) -> list[str]:
        """The names of those the user may see."""
        ...

    async def make_virtual_host(self, name: str) -> None:
        """Make one, in which the user may do everything. Idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class Rewound:
    """How much of a queue comes again, in one of the places where its broker keeps it."""

    place: str  # a partition, by its topic and number: "order.placed/0"
    messages: int  # at most: the broker knows places, not whether there is something in each


@runtime_checkable
class Rewinding(Protocol):
    """A driver whose broker keeps what was consumed, and lets a queue have it again."""

    async def rewind(self, queue: str, to: datetime, *, dry_run: bool) -> Sequence[Rewound]:
        """Let an existing queue go on from what was stored at that moment; never forwards. Says
        what comes again. A dry run changes nothing."""
        ...


class Subscription(ABC):
    """One consumer of one queue. It knows which deliveries it holds: settling one it does not
    hold any more changes nothing."""

    on_leaving: Callable[[Sequence[Delivery]], object] | None = None
    """Set by whoever consumes, for brokers that share a queue out anew: called in the loop when
    others are about to be given some of what is held, and again while they wait for it. What is
    released then is not waited for."""

    on_left: Callable[[Sequence[Delivery]], object] | None = None
    """The same once others have it. It is held no more; without this, `receive` raises."""

    @abstractmethod
    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        """Up to `limit` deliveries; waits up to `wait` seconds for the first, then returns none.
        May be cancelled at any moment: nothing is lost, what was taken is still held or given
        by the next call."""

    @abstractmethod
    async def ack(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        """Forget the messages. Returns the stale ones: no longer ours, delivered elsewhere."""

    @abstractmethod
    async def release(self, deliveries: Sequence[Delivery]) -> None:
        """Give back, to the head of the queue, in order, without counting a failure or, where
        the broker allows it, a redelivery. With it goes what was taken and not received, also if
        `deliveries` is empty: nothing may wait here for a `receive` that is long in coming."""

    @abstractmethod
    async def send(self, messages: Sequence[Outgoing]) -> Sequence[Receipt]:
        """As the driver's `send`; here so that `move` can be built on it."""

    async def move(self, moves: Sequence[Move]) -> Sequence[Receipt]:
        """Send, then ack what was accepted: may duplicate, never loses. This is how retries,
        dead letters and redrives travel. Override it only to make it atomic."""
        receipts = await self.send([move.to for move in moves])
        failpoint("move.after_send")
        accepted = [
            move.delivery
            for move, receipt in zip(moves, receipts, strict=True)
            if receipt is ACCEPTED
        ]
        if accepted:
            await self.ack(accepted)
        failpoint("move.after_ack")
        return receipts

    @abstractmethod
    async def close(self) -> None:
        """Stop receiving. What is still held goes back as redeliveries. Idempotent."""
