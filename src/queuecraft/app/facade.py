"""QueueCraft, the facade: the one object an application talks to."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Self, Unpack

from queuecraft.admin import Admin
from queuecraft.app.assembly import Assembly
from queuecraft.app.listeners import F, Listeners
from queuecraft.app.outlet import Outlet
from queuecraft.clock import Clock
from queuecraft.codec import Codec, Compressors, Serializers
from queuecraft.config import settings_from_environment, settings_from_file
from queuecraft.config.options import Options, parted
from queuecraft.drivers.base import Driver, Gauge
from queuecraft.drivers.registry import Drivers
from queuecraft.middleware.breaker import Breaker
from queuecraft.model.errors import ConfigError
from queuecraft.model.event import Event
from queuecraft.model.metadata import QueueMetadata
from queuecraft.model.policy import DeadLetter, NoDeadLetter, NoRetry, Policy, Retry
from queuecraft.model.queue import Queue
from queuecraft.model.settings import Settings, SettingsOptions
from queuecraft.model.types import T
from queuecraft.runtime.channel import channel_of, handlers_of
from queuecraft.runtime.counters import Metrics
from queuecraft.runtime.dead_letters import DeadLetters
from queuecraft.runtime.delayed import Delayed
from queuecraft.runtime.facts import ConnectionState
from queuecraft.runtime.handler import Middleware
from queuecraft.runtime.health import Health
from queuecraft.runtime.plan import WorkerOptions
from queuecraft.runtime.publication import PublishMiddleware
from queuecraft.runtime.roster import Roster
from queuecraft.runtime.stream import MessageStream
from queuecraft.runtime.worker import Worker


class QueueCraft(Outlet):
    """Publishes and handles typed events over the broker of a URL.

    Nothing is connected until it is needed. `async with` connects, declares the queues of its
    workers, and shuts down gracefully at the end. Instances share nothing.

    >>> import asyncio
    >>> from queuecraft import Event, QueueCraft
    >>> greeted = Event("user.greeted", dict)
    >>> qc = QueueCraft("local://")
    >>> greeter = qc.worker("greeter")
    >>> @greeter.on(greeted)
    ... async def greet(user: dict) -> None:
    ...     print("hello", user["name"])
    ...     asyncio.get_running_loop().call_soon(done.set)
    >>> async def main() -> None:
    ...     global done
    ...     done = asyncio.Event()
    ...     async with qc:
    ...         await greeter.start()
    ...         await qc.publish(greeted, {"name": "Ada"})
    ...         await done.wait()
    >>> asyncio.run(main())
    hello Ada
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        settings: Settings | None = None,
        drivers: Drivers | Sequence[Driver] | None = None,
        serializers: Serializers | None = None,
        compressors: Compressors | None = None,
        middleware: Iterable[Middleware] = (),
        publish_middleware: Iterable[PublishMiddleware] = (),
        breaker: Breaker | None = None,
        logger: logging.Logger | None = None,
        clock: Clock | None = None,
        **options: Unpack[SettingsOptions],
    ) -> None:
        given: dict[str, Any] = {**options} if url is None else {"url": url, **options}
        if settings is None:
            settings = Settings.of(given)
        elif given:
            name = next(iter(given))
            raise ConfigError(f"give settings= or keywords such as {name}=, not both")
        self._roster = Roster()
        self._listeners = Listeners()
        self._work_with(
            Assembly(
                settings,
                drivers,
                clock or Clock(),
                self._roster,
                serializers=serializers,
                compressors=compressors,
                breaker=breaker,
                logger=logger,
            )
        )
        if breaker is not None:
            self.use_publishing(breaker.publishing)
        self.use(*middleware)
        self.use_publishing(*publish_middleware)

    def _work_with(self, parts: Assembly) -> None:
        """Begin as one that has never been opened."""
        super().__init__(parts.engine.publishing, parts.requests)
        self.settings = parts.engine.settings
        self._parts = parts
        self._engine = parts.engine

    @classmethod
    def from_environment(
        cls, *, env_file: str | PathLike[str] | None = None, **options: Unpack[Options]
    ) -> Self:
        """A QueueCraft with the settings of, the first that says it: keywords, the `QUEUECRAFT_…`
        variables of the environment, a `.env` file, the TOML file that QUEUECRAFT_CONFIG names or
        `queuecraft.toml`.

        >>> QueueCraft.from_environment(concurrency=8).settings.concurrency
        8
        """
        parts, given = parted(options)
        return cls(settings=settings_from_environment(env_file=env_file, given=given), **parts)

    @classmethod
    def from_file(cls, path: str | PathLike[str], **options: Unpack[Options]) -> Self:
        """A QueueCraft with the settings of a TOML file, its table `[queuecraft]` if it has one,
        or `[tool.queuecraft]` of a `pyproject.toml`; keywords go before it.

        >>> QueueCraft.from_file("no-such.toml")
        Traceback (most recent call last):
        queuecraft.ConfigError: there is no file no-such.toml
        """
        parts, given = parted(options)
        return cls(settings=settings_from_file(path, given=given), **parts)

    # -- handling ------------------------------------------------------------------------------

    def worker(
        self, queue: str | Queue[Any] | None = None, **options: Unpack[WorkerOptions]
    ) -> Worker:
        """A worker for a queue. Options: `service, concurrency, prefetch, batch_size, batch_wait,
        ordering, retry, dead_letter, ttl, ack_timeout, max_redeliveries, exchange, middleware,
        durable`.

        >>> from queuecraft import QueueCraft, Retry
        >>> QueueCraft().worker("billing", retry=Retry(max_retries=5), concurrency=8)
        <Worker 'billing' on nothing, new>
        """
        return self._roster.add(self._roster.make(self._engine, queue, options))

    def include(self, instance: object) -> Worker:
        """A worker whose handlers are the `@consume` methods of a `@channel` class.

        >>> from queuecraft import QueueCraft, channel, consume
        >>> @channel("audit")
        ... class Audit:
        ...     @consume("order.*")
        ...     async def note(self, order: dict) -> None: ...
        >>> QueueCraft().include(Audit())
        <Worker 'audit' on order.*, new>
        """
        found = channel_of(instance)
        worker = self._roster.make(self._engine, found.queue, found.options)
        for consumed, method in handlers_of(instance):
            worker.on(
                consumed.event,
                method,
                match=consumed.match,
                batch_size=consumed.batch_size,
                batch_wait=consumed.batch_wait,
            )
        return self._roster.add(worker)

    def subscribe(
        self,
        queue: str,
        event: Event[T],
        *more: Event[T],
        ttl: float | None = None,
        retry: Retry | NoRetry | None = None,
        dead_letter: DeadLetter | NoDeadLetter | None = None,
        durable: bool = True,
    ) -> MessageStream[T]:
        """The messages of a queue, one by one, as an async iterator. Going on to the next one
        acknowledges the last, unless it was settled by hand.

        >>> import asyncio
        >>> from queuecraft import Event, QueueCraft
        >>> number = Event("number", int)
        >>> async def main() -> None:
        ...     async with QueueCraft() as qc:
        ...         stream = qc.subscribe("numbers", number)
        ...         await stream.open()
        ...         await qc.publish_many(number, [1, 2, 3])
        ...         async with stream:
        ...             async for message in stream:
        ...                 print(message.payload)
        ...                 if message.payload == 3:
        ...                     await message.ack()
        ...                     break
        >>> asyncio.run(main())
        1
        2
        3
        """
        options: WorkerOptions = {
            "durable": durable,
            "concurrency": 1,  # one loop, one message at a time
            "prefetch": self.settings.prefetch or self.settings.concurrency,
        }
        if ttl is not None:
            options["ttl"] = ttl
        if retry is not None:
            options["retry"] = retry
        if dead_letter is not None:
            options["dead_letter"] = dead_letter
        worker = self._roster.make(self._engine, queue, options)
        stream: MessageStream[T] = MessageStream(worker)
        for each in (event, *more):
            worker.on(each, stream.handle)
        self._roster.add(worker)
        return stream

    @property
    def workers(self) -> tuple[Worker, ...]:
        """Every worker made so far."""
        return tuple(self._roster)

    @property
    def registry(self) -> tuple[QueueMetadata, ...]:
        """Every channel and its handlers, for tools to read.

        >>> from queuecraft import QueueCraft
        >>> qc = QueueCraft()
        >>> _ = qc.worker("audit").on("order.*", print)
        >>> qc.registry[0].queue, qc.registry[0].handlers[0].pattern
        ('audit', 'order.*')
        """
        return tuple(worker.metadata for worker in self._roster.named)

    async def run(self) -> None:
        """Run all workers until SIGTERM or SIGINT, or until each is stopped. Raises
        `ConnectionLost` when the connection is given up, as `auto_reconnect` and
        `reconnect_attempts` say."""
        for worker in self._roster:
            worker.build()
        runs = [asyncio.ensure_future(worker.run()) for worker in self._roster]
        try:
            await asyncio.gather(*runs)
        except Exception:
            # What runs in the others is finished as well, before anybody closes the loop.
            stops = (worker.stop() for worker in self._roster)
            await asyncio.gather(*stops, return_exceptions=True)
            for each in runs:
                each.cancel()  # one may still wait for a broker that is away
            await asyncio.gather(*runs, return_exceptions=True)
            raise

    def use(self, *middleware: Middleware) -> None:
        """Wrap every handler of workers started from now on.

        >>> from queuecraft import QueueCraft
        >>> def timed(handle):
        ...     async def timing(message):
        ...         return await handle(message)
        ...
        ...     return timing
        >>> QueueCraft().use(timed)
        """
        self._engine.use(middleware)

    def use_publishing(self, *middleware: PublishMiddleware) -> None:
        """Wrap `publish`, `publish_many` and `send` from now on; the first is the outermost.

        >>> from queuecraft import QueueCraft
        >>> def stamped(publish):
        ...     async def stamping(publication):
        ...         publication.set_header("x-tenant", "acme")
        ...         return await publish(publication)
        ...
        ...     return stamping
        >>> QueueCraft().use_publishing(stamped)
        """
        self._engine.use_publishing(middleware)

    @contextlib.contextmanager
    def override(
        self, dependency: Callable[..., Any], replacement: Callable[..., Any]
    ) -> Generator[None]:
        """While the block runs, let `replacement` make what handlers ask of `dependency`: for
        tests. It may ask for dependencies itself, and for the one that it replaces.

        >>> import asyncio
        >>> from typing import Annotated
        >>> from queuecraft import Depends
        >>> from queuecraft.testing import MockQueueCraft
        >>> def rate() -> float:
        ...     raise ConnectionError("tests do not ask the bank")
        >>> async def main() -> None:
        ...     async with MockQueueCraft() as mock:
        ...         billing = mock.worker("billing")
        ...
        ...         @billing.on("order.placed")
        ...         async def charge(total: float, rate: Annotated[float, Depends(rate)]) -> None:
        ...             print(total * rate)
        ...
        ...         with mock.override(rate, lambda: 1.5):
        ...             await mock.deliver(billing, 10.0)
        >>> asyncio.run(main())
        15.0
        """
        overrides = self._engine.overrides
        together = overrides.with_one_more(dependency, replacement)
        self._roster.check_overrides(together)
        with overrides.replacing(dependency, replacement):
            yield

    def observe(self, kind: type[F], observer: Callable[[F], object]) -> Callable[[], None]:
        """Call `observer` with each fact of this kind; returns a function that stops it.

        >>> from queuecraft import QueueCraft
        >>> from queuecraft.facts import MessageFailed
        >>> stop = QueueCraft().observe(MessageFailed, print)
        """
        return self._listeners.add(self._engine.facts, kind, observer)

    def configure(self, *, default_queue: Policy) -> None:
        """What deliveries get where neither message, worker nor queue says otherwise.

        >>> from queuecraft import Policy, QueueCraft
        >>> qc = QueueCraft()
        >>> qc.configure(default_queue=Policy(ack_timeout=60))
        >>> qc.worker("billing").policy.ack_timeout
        60
        """
        self._engine.policy = default_queue.over(self._engine.policy)

    # -- watching ------------------------------------------------------------------------------

    @property
    def in_threads(self) -> int:
        """How many sync handlers are at work."""
        return sum(worker.in_threads for worker in self._roster)

    @property
    def codec(self) -> Codec:
        """How payloads are written and read."""
        return self._engine.codec

    @property
    def connection_state(self) -> ConnectionState:
        """disconnected, connecting, connected, reconnecting, circuit_open, closing or closed."""
        return self._parts.vitals.connection_state

    @property
    def dead_letters(self) -> DeadLetters:
        """Dead letters: list, count, purge, and `await qc.dead_letters.redrive("billing")`."""
        return DeadLetters(
            self._engine.connection, self._engine.clock, self._roster.dead_letter_queue
        )

    @property
    def admin(self) -> Admin:
        """What an operator does: see, peek, declare, bind, move, purge and delete."""
        return Admin(self._engine, self.dead_letters, self._roster.holds_dead_letters)

    @property
    def delayed(self) -> Delayed:
        """Delayed messages that can be listed, limited and cancelled: add, list, stats, cleanup."""
        return self._parts.delayed

    def health_check(self) -> Health:
        """Healthy while connected and consuming; otherwise what is wrong, and since when.

        >>> from queuecraft import QueueCraft
        >>> QueueCraft().health_check().status
        'unhealthy'
        """
        return self._parts.vitals.health()

    def get_metrics(self) -> Metrics:
        """What was sent, received, failed and so on since the start, in all and for each queue.

        >>> from queuecraft import QueueCraft
        >>> QueueCraft().get_metrics().messages_sent
        0
        """
        return self._parts.vitals.metrics()

    def get_broker_gauges(self) -> Sequence[Gauge]:
        """What the client of the broker measures, where the URL asks for it: on Kafka, with
        `statistics=5`, every five seconds.

        >>> from queuecraft import QueueCraft
        >>> QueueCraft().get_broker_gauges()
        ()
        """
        driver = self._engine.connection.current
        return () if driver is None else driver.gauges()

    # -- life ----------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect now and declare the queues of all workers; `async with` does this for you.
        Raises `ConnectionLost` when no host answers, `ConfigError` when trying again is no use."""
        await self._parts.life.open()

    async def shutdown(self, timeout: float | None = None) -> None:
        """Stop gracefully: workers finish what runs, publishes are flushed, then all is closed.

        Takes at most `timeout` seconds (default: the setting `shutdown_timeout`) before handlers
        still at work are cancelled and their messages given back.
        """
        await self._parts.life.end(timeout)

    async def __aenter__(self) -> Self:
        try:
            await self.open()
        except BaseException:
            await self.shutdown()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.shutdown()

    def __repr__(self) -> str:
        broker = self._engine.connection.traits.name
        return f"<QueueCraft {broker} {self.connection_state}, {len(self._roster)} workers>"

    def stand_in(self, drivers: Sequence[Driver], clock: Clock) -> Callable[[], None]:
        """Work with other drivers and another clock, as if newly made, and without a journal, until
        the function that is returned is called; `queuecraft.testing.testing` does it for you. The
        workers, middleware and observers there are stay."""
        engine = self._engine
        if engine.connection.state not in ("disconnected", "closed"):
            raise ConfigError("this QueueCraft is open; use testing(qc) before it is, or instead")
        own = self.__dict__.copy()
        other = self._parts.rehearsal(drivers, clock)
        restore = (
            self._roster.stand_in(other.engine),
            self._listeners.stand_in(other.engine.facts),
        )
        self._work_with(other)

        def go_back() -> None:
            for each in restore:
                each()
            self.__dict__.clear()
            self.__dict__.update(own)
            engine.adopt((*engine.middleware, *engine.publishing.middleware))

        return go_back
