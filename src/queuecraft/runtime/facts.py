"""What happened, told to whoever asked: logs, metrics, traces and your own callbacks."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from queuecraft.model.envelope import Delivery, Outgoing
from queuecraft.model.errors import ConfigError
from queuecraft.model.outcome import Failure

ConnectionState: TypeAlias = Literal[
    "disconnected",
    "connecting",
    "connected",
    "reconnecting",
    "circuit_open",
    "closing",
    "closed",
]


CircuitState: TypeAlias = Literal["closed", "open", "half_open"]


class Fact(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Anything that happened; observe this to be told of everything."""


class WorkerStarted(Fact, frozen=True, eq=False, kw_only=True):
    """A worker consumes from now on."""

    worker: str
    queue: str


class WorkerStopped(Fact, frozen=True, eq=False, kw_only=True):
    """A worker has let go of everything it held."""

    worker: str
    queue: str


class WorkerPaused(Fact, frozen=True, eq=False, kw_only=True):
    """A worker takes no more messages for now; `reason` tells why."""

    worker: str
    queue: str
    reason: str


class WorkerResumed(Fact, frozen=True, eq=False, kw_only=True):
    """A paused worker takes messages again."""

    worker: str
    queue: str


class MessagesPublished(Fact, frozen=True, eq=False, kw_only=True, gc=False):
    """The broker has accepted these messages, `at` this time, in seconds since the epoch."""

    messages: Sequence[Outgoing]
    at: float | None = None


class PublishFailed(Fact, frozen=True, eq=False, kw_only=True):
    """The broker did not take these messages, or did not say so in time; `error` is what was said
    of the first. Who published them has been told."""

    name: str
    count: int
    error_type: str
    error: str


class MessagesDelivered(Fact, frozen=True, eq=False, kw_only=True):
    """A worker has received these messages."""

    worker: str
    deliveries: Sequence[Delivery]


class MessagesSucceeded(Fact, frozen=True, eq=False, kw_only=True):
    """Handlers returned; `durations` are seconds, one for each delivery, or none for a message
    acknowledged by hand."""

    worker: str
    deliveries: Sequence[Delivery]
    durations: Sequence[float]


class MessagesAcked(Fact, frozen=True, eq=False, kw_only=True):
    """The broker was told to forget these messages."""

    worker: str
    deliveries: Sequence[Delivery]


class MessageFailed(Fact, frozen=True, eq=False, kw_only=True):
    """One delivery failed, by an exception, by hand (`nack`), or by its ack timeout."""

    worker: str
    delivery: Delivery
    attempt: int
    reason: str
    failure: Failure | None = None
    duration: float | None = None


class MessageRetried(Fact, frozen=True, eq=False, kw_only=True):
    """It comes back after `delay` seconds."""

    worker: str
    delivery: Delivery
    attempt: int
    reason: str
    delay: float
    failure: Failure | None = None


class MessagePostponed(Fact, frozen=True, eq=False, kw_only=True):
    """It was not handled now, and comes again after `delay` seconds; no failure is counted."""

    worker: str
    delivery: Delivery
    delay: float
    reason: str


class CircuitChanged(Fact, frozen=True, eq=False, kw_only=True):
    """A circuit breaker, or an outage guard, has opened, tries again, or is closed."""

    name: str
    state: CircuitState
    error: str | None = None


class MessageDeadLettered(Fact, frozen=True, eq=False, kw_only=True):
    """It is kept in the dead-letter queue."""

    worker: str
    delivery: Delivery
    attempt: int
    reason: str
    failure: Failure | None = None


class MessageExpired(Fact, frozen=True, eq=False, kw_only=True):
    """Its time to live was over before a handler saw it."""

    worker: str
    delivery: Delivery


class MessageDropped(Fact, frozen=True, eq=False, kw_only=True):
    """It is gone: dead letters are off."""

    worker: str
    delivery: Delivery
    attempt: int
    reason: str
    failure: Failure | None = None


class ConnectionStateChanged(Fact, frozen=True, eq=False, kw_only=True):
    """The connection went from one state to another."""

    old: ConnectionState
    new: ConnectionState
    error: str | None = None


class Disconnected(Fact, frozen=True, eq=False, kw_only=True):
    """The connection was lost."""

    error: str


class Reconnecting(Fact, frozen=True, eq=False, kw_only=True):
    """The next try to connect comes in `delay` seconds."""

    attempt: int
    delay: float
    error: str


class Reconnected(Fact, frozen=True, eq=False, kw_only=True):
    """The connection is back after `downtime` seconds."""

    attempt: int
    downtime: float


class ReconnectFailed(Fact, frozen=True, eq=False, kw_only=True):
    """No further tries: the number of attempts allowed is used up."""

    attempts: int
    error: str


class LoopBlocked(Fact, frozen=True, eq=False, kw_only=True):
    """A handler, or other code, kept the event loop from turning; `stack` shows where."""

    seconds: float
    stack: str


class DelayedDelivered(Fact, frozen=True, eq=False, kw_only=True):
    """Delayed messages have left `qc.delayed` for their queues."""

    messages: Sequence[Outgoing]


class DelayedRefused(Fact, frozen=True, eq=False, kw_only=True):
    """Delayed messages were due and could not be delivered; they wait and are tried again.
    `error` is what was said of the first."""

    count: int
    error: str


class DelayedCleaned(Fact, frozen=True, eq=False, kw_only=True):
    """A cleanup of `qc.delayed` has ended, perhaps with nothing to do; `error` if it failed."""

    cleaned: int
    refused: int
    seconds: float
    size: int | None
    policy: str
    error: str | None = None


class DelayedAlert(Fact, frozen=True, eq=False, kw_only=True):
    """Too many delayed messages wait, or they grow by more than usual. Told once, until it is
    over; `about` says which, `status` how bad it is."""

    about: Literal["size", "growth"]
    status: Literal["warning", "critical"]
    size: int
    limit: int
    growth_per_minute: float | None


class DelayedRecovered(Fact, frozen=True, eq=False, kw_only=True):
    """What there was an alert about is over."""

    about: Literal["size", "growth"]
    size: int
    limit: int


class Shutdown(Fact, frozen=True, eq=False, kw_only=True):
    """Everything is closed. The last fact of a QueueCraft."""


F = TypeVar("F", bound=Fact)


class Facts:
    """Who wants to be told what. A fact is built only if somebody does.

    >>> facts = Facts()
    >>> stop = facts.observe(Shutdown, lambda fact: print("bye"))
    >>> facts.wants(Shutdown), facts.wants(Disconnected)
    (True, False)
    >>> facts.emit(Shutdown())
    bye
    >>> stop()
    >>> facts.wants(Shutdown)
    False
    """

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self.log = logger or logging.getLogger("queuecraft")
        self._observers: dict[object, tuple[type[Fact], Callable[[Any], object]]] = {}
        self._for: dict[type[Fact], tuple[Callable[[Any], object], ...]] = {}
        self._tasks: set[asyncio.Task[object]] = set()

    def observe(self, kind: type[F], observer: Callable[[F], object]) -> Callable[[], None]:
        """Call `observer` with each fact of this kind; the result stops it again."""
        wanted: object = kind
        if not (isinstance(wanted, type) and issubclass(wanted, Fact)):
            raise ConfigError(f"observe({kind!r}, …): expected a class from queuecraft.facts")
        if not callable(observer):
            raise ConfigError(f"observe(…, {observer!r}): expected a function of one fact")
        entry = object()  # observed twice, it is stopped twice
        self._observers[entry] = (kind, observer)
        self._for.clear()

        def stop() -> None:
            self._observers.pop(entry, None)
            self._for.clear()

        return stop

    def wants(self, kind: type[Fact]) -> bool:
        """Whether anybody observes this kind."""
        found = self._for.get(kind)
        if found is None:
            found = self._for[kind] = tuple(
                observer
                for wanted, observer in self._observers.values()
                if issubclass(kind, wanted)
            )
        return bool(found)

    @property
    def observers(self) -> Mapping[type[Fact], tuple[Callable[[Any], object], ...]]:
        """Who observes the kinds that somebody has asked about; the same object for ever. For
        those who have a fact with each message: they save the call of `wants`."""
        return self._for

    def emit(self, fact: Fact) -> None:
        """Tell the observers. One that fails is logged and changes nothing."""
        kind = type(fact)
        if kind in self._for or self.wants(kind):
            self.tell(self._for[kind], fact)

    def tell(self, observers: Iterable[Callable[[Any], object]], fact: Fact) -> None:
        """Tell these observers, who are those of its kind."""
        for observer in observers:
            try:
                result = observer(fact)
                if result is not None and inspect.iscoroutine(result):
                    self._start(result)
            except (Exception, asyncio.CancelledError):  # the latter from a future it looked at
                name = getattr(observer, "__qualname__", type(observer).__qualname__)
                self.log.exception("observer %s failed on %s", name, type(fact).__name__)

    async def flush(self) -> None:
        """Wait for async observers that are still at work."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def _start(self, coroutine: Coroutine[Any, Any, object]) -> None:
        try:
            task = asyncio.get_running_loop().create_task(coroutine)
        except RuntimeError:  # no loop turns here
            coroutine.close()
            raise
        self._tasks.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.log.error("an async observer failed", exc_info=error)
