"""Workers: handlers on a queue, and the handle to start, pause and stop them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Concatenate, Literal, Self, TypeAlias, overload

from queuecraft.model.errors import ConfigError
from queuecraft.model.event import Event
from queuecraft.model.message import Message
from queuecraft.model.metadata import ConsumeMetadata, QueueMetadata
from queuecraft.model.policy import DeadLetter, NoDeadLetter, NoRetry, Policy, Retry
from queuecraft.model.queue import DeadLetterTarget, Queue
from queuecraft.model.types import T
from queuecraft.runtime.counters import Counters
from queuecraft.runtime.engine import Engine
from queuecraft.runtime.facts import WorkerStarted, WorkerStopped
from queuecraft.runtime.plan import Ordering, Plan, WorkerOptions
from queuecraft.runtime.registration import BatchRegistration, Registration
from queuecraft.runtime.shift import Shift

State: TypeAlias = Literal["new", "running", "paused", "stopping", "stopped"]


class Worker:
    """Handles the messages of one queue.

    >>> from queuecraft import Event, QueueCraft
    >>> qc = QueueCraft()
    >>> billing = qc.worker("billing", concurrency=8)
    >>> @billing.on(Event("order.placed", dict))
    ... async def charge(order: dict) -> None: ...
    >>> billing
    <Worker 'billing' on order.placed, new>
    """

    def __init__(
        self,
        engine: Engine,
        queue: str | Queue[Any] | None,
        options: WorkerOptions,
        holds_dead_letters: Callable[[str], bool],
    ) -> None:
        self._plan = Plan.of(queue, options, engine.settings)
        self._plan.check(engine.connection.traits)
        self._holds_dead_letters = holds_dead_letters
        self._work_for(engine)

    def _work_for(self, engine: Engine) -> None:
        """Begin as one that has never run."""
        self._engine = engine
        self._name: str | None = None
        self.counters = Counters()
        self._shift: Shift | None = None
        self._state: State = "new"
        self._starting = asyncio.Lock()
        self._stops = 0
        self._stopped = asyncio.Event()
        self._stopping: asyncio.Future[None] | None = None

    # -- handlers ------------------------------------------------------------------------------

    @overload
    def on(
        self, event: Event[T] | Queue[T], *, match: Mapping[str, Any] | None = None
    ) -> Registration[T]: ...
    @overload
    def on(
        self,
        event: Event[T] | Queue[T],
        *,
        batch_size: int,
        batch_wait: float | None = None,
        match: Mapping[str, Any] | None = None,
    ) -> BatchRegistration[T]: ...
    @overload
    def on(
        self,
        event: str,
        *,
        batch_size: int | None = None,
        batch_wait: float | None = None,
        match: Mapping[str, Any] | None = None,
    ) -> Registration[Any]: ...
    @overload
    def on(
        self,
        event: Event[T] | Queue[T],
        handler: Callable[[T], object],
        *,
        match: Mapping[str, Any] | None = None,
    ) -> Self: ...
    @overload
    def on(
        self,
        event: Event[T] | Queue[T],
        handler: Callable[[T, Message[T]], object],
        *,
        match: Mapping[str, Any] | None = None,
    ) -> Self: ...
    @overload
    def on(
        self,
        event: Event[T] | Queue[T],
        handler: Callable[Concatenate[T, ...], object],
        *,
        match: Mapping[str, Any] | None = None,
    ) -> Self: ...
    @overload
    def on(
        self,
        event: Event[T] | Queue[T],
        handler: Callable[Concatenate[Message[T], ...], object],
        *,
        match: Mapping[str, Any] | None = None,
    ) -> Self: ...
    @overload
    def on(
        self,
        event: Event[T] | Queue[T],
        handler: Callable[Concatenate[list[T], ...], object],
        *,
        batch_size: int | None = None,
        batch_wait: float | None = None,
        match: Mapping[str, Any] | None = None,
    ) -> Self: ...
    @overload
    def on(
        self,
        event: Event[T] | Queue[T],
        handler: Callable[Concatenate[list[Message[T]], ...], object],
        *,
        batch_size: int | None = None,
        batch_wait: float | None = None,
        match: Mapping[str, Any] | None = None,
    ) -> Self: ...
    @overload
    def on(
        self,
        event: str,
        handler: Callable[..., object],
        *,
        batch_size: int | None = None,
        batch_wait: float | None = None,
        match: Mapping[str, Any] | None = None,
    ) -> Self: ...
    def on(
        self,
        event: Event[Any] | Queue[Any] | str,
        handler: Callable[..., object] | None = None,
        *,
        batch_size: int | None = None,
        batch_wait: float | None = None,
        match: Mapping[str, Any] | None = None,
    ) -> Registration[Any] | BatchRegistration[Any] | Self:
        """Handle an event, or every event of a pattern with `*` and `#`; as a decorator, or with
        the function as second argument. `match` are the header values wanted of a headers
        exchange.

        >>> from queuecraft import Message, QueueCraft
        >>> audit = QueueCraft().worker("audit")
        >>> @audit.on("order.#")
        ... async def note(message: Message) -> None: ...

        A handler whose first parameter is a list gets up to `batch_size` messages at once. It is
        given what is there: a message waits for company `batch_wait` seconds, by default not at
        all, because under load the next batch fills while this one is handled.

        >>> @audit.on("user.*", batch_size=100)
        ... async def store(users: list[dict]) -> None: ...
        """

        if handler is None:
            return Registration(
                lambda function: self._add(event, function, match, batch_size, batch_wait)
            )
        return self._add(event, handler, match, batch_size, batch_wait)

    def _add(
        self,
        target: Event[Any] | Queue[Any] | str,
        function: Callable[..., Any],
        match: Mapping[str, Any] | None,
        batch_size: int | None,
        batch_wait: float | None,
    ) -> Self:
        plan = self._plan.with_handler(target, function, match, batch_size, batch_wait)
        return self._change(plan)

    # -- the fluent way to say the same options ------------------------------------------------

    def queue(
        self,
        *,
        durable: bool | None = None,
        exclusive: bool | None = None,
        auto_delete: bool | None = None,
        max_priority: int | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> Self:
        """What the queue itself is like; what is left out stays as it is."""
        given = {
            "durable": durable,
            "exclusive": exclusive,
            "auto_delete": auto_delete,
            "max_priority": max_priority,
            "arguments": None if arguments is None else dict(arguments),
        }
        said = {name: value for name, value in given.items() if value is not None}
        plan = self._plan
        return self._change(replace(plan, properties={**plan.properties, **said}))

    def concurrency(self, handlers: int) -> Self:
        """How many handlers run at once."""
        return self._change(replace(self._plan, concurrency=handlers))

    def prefetch(self, messages: int) -> Self:
        """How many messages may be received and not yet settled."""
        return self._change(replace(self._plan, prefetch=messages))

    def batch_size(self, messages: int) -> Self:
        """How many messages its handlers of lists get at most at once."""
        return self._change(replace(self._plan, batch_size=messages))

    def batch_wait(self, seconds: float) -> Self:
        """How long a batch that is not full waits for more messages."""
        return self._change(replace(self._plan, batch_wait=seconds))

    def ordering(self, ordering: Ordering) -> Self:
        """`"key"`: messages of one key in order, keys side by side."""
        return self._change(replace(self._plan, ordering=ordering))

    def retry(self, retry: Retry | NoRetry) -> Self:
        """When to try again."""
        return self._policy(Policy(retry=retry))

    def dead_letter(self, dead_letter: DeadLetter | NoDeadLetter) -> Self:
        """Where to keep what could not be handled."""
        return self._policy(Policy(dead_letter=dead_letter))

    def ttl(self, seconds: float) -> Self:
        """How long a message may wait before it expires."""
        return self._policy(Policy(ttl=seconds))

    def ack_timeout(self, seconds: float) -> Self:
        """How long a handler may take."""
        return self._policy(Policy(ack_timeout=seconds))

    def build(self) -> Self:
        """Check that the worker is complete: it has handlers and a good name.

        >>> from queuecraft import QueueCraft, Retry
        >>> qc = QueueCraft()
        >>> async def charge(order: dict) -> None: ...
        >>> qc.worker("billing").prefetch(10).retry(Retry(max_retries=5)).on(
        ...     "order.*", charge
        ... ).build()
        <Worker 'billing' on order.*, new>
        """
        if not self._plan.handlers:
            name = self._plan.queue.name if self._plan.queue else "this worker"
            raise ConfigError(f"{name!r} has no handlers; add one with .on(event, function)")
        given = self._plan.batch_size or 1
        if given > 1 and not any(handler.in_batches for handler in self._plan.handlers):
            raise ConfigError(
                f"worker {self.queue_name!r} has batch_size={given}, and no handler that takes a "
                "list; annotate the first parameter of one as list[…], or leave out batch_size"
            )
        self.definition  # noqa: B018  every name in it is checked
        return self

    def check_processes(self, processes: int) -> None:
        """Raise `ConfigError` if that many processes cannot share its queue.

        >>> from queuecraft import QueueCraft
        >>> QueueCraft("local://").worker("billing").check_processes(2)
        Traceback (most recent call last):
        queuecraft.ConfigError: queue 'billing' cannot have 2 processes: local ...
        """
        traits = self._engine.connection.traits
        if processes == 1:
            return
        if not traits.competing:
            why = f"{traits.name} gives every message to each of them"
        elif not traits.durable:
            why = f"{traits.name} keeps messages in memory, and each would have its own"
        elif self.ordered and traits.key_order == "worker":
            why = "ordering='key' holds within one process; raise its concurrency instead"
        else:
            return
        raise ConfigError(f"queue {self.queue_name!r} cannot have {processes} processes: {why}")

    def check_overrides(self, overrides: Mapping[Callable[..., Any], Callable[..., Any]]) -> None:
        """Raise `ConfigError` if its handlers cannot get what they ask for from these."""
        for handler in self._plan.handlers:
            handler.providers(overrides)

    def _policy(self, policy: Policy) -> Self:
        return self._change(replace(self._plan, policy=policy.over(self._plan.policy)))

    def _change(self, plan: Plan) -> Self:
        if self._state == "running" or self._starting.locked():
            raise ConfigError(f"worker {self.queue_name!r} is running; stop it before changing it")
        plan.check(self._engine.connection.traits)
        self._plan = plan
        self._name = None
        return self

    # -- what it is ----------------------------------------------------------------------------

    @property
    def queue_name(self) -> str:
        """The queue it consumes: as given, or named after its service or its events."""
        if self._name is None:
            self._name = self._plan.name(self._engine.connection.traits)
        return self._name

    @property
    def named(self) -> str | None:
        """The name it was given, if it was given one."""
        return None if self._plan.queue is None else self._plan.queue.name

    @property
    def ordered(self) -> bool:
        """Whether it keeps messages of one key in order."""
        return self._plan.ordering == "key"

    @property
    def state(self) -> State:
        """new, running, paused, stopping or stopped."""
        paused = self._shift is not None and self._shift.consumer.paused is not None
        return "paused" if paused and self._state == "running" else self._state

    @property
    def paused(self) -> str | None:
        """Why it takes no messages, if it does not."""
        if self._shift is None:
            return None
        return self._shift.consumer.paused or self._shift.consumer.intake.refused

    @property
    def standing(self) -> str | None:
        """Why it handles no messages, if so: it takes none, or its threads all hang."""
        return self.paused or (None if self._shift is None else self._shift.threads.exhausted)

    @property
    def at_once(self) -> int:
        """How many of its handlers may be at work at a time."""
        return self._plan.concurrency

    @property
    def in_threads(self) -> int:
        """How many of its handlers are at work in threads."""
        return 0 if self._shift is None else self._shift.threads.busy

    @property
    def in_flight(self) -> int:
        """Messages received and not yet settled."""
        return 0 if self._shift is None else self._shift.consumer.held

    @property
    def handlers(self) -> tuple[ConsumeMetadata, ...]:
        """What it handles, for tools."""
        return tuple(handler.metadata for handler in self._plan.handlers)

    @property
    def metadata(self) -> QueueMetadata:
        """The queue and its handlers, for tools."""
        return QueueMetadata(self.queue_name, self._plan.exchange.name, self.handlers)

    @property
    def policy(self) -> Policy:
        """What happens around its deliveries, with everything left open filled in."""
        default = self._engine.policy
        if self._holds_dead_letters(self.queue_name):  # kept until somebody has seen to them
            default = replace(default, ttl=None)
        return self._plan.policy_over(default)

    @property
    def dead_letters(self) -> DeadLetterTarget | None:
        """Where its dead letters go; None where they are off."""
        traits = self._engine.connection.traits
        policy = self._plan.policy_over(self._engine.policy)
        return self._plan.dead_letters(self.queue_name, policy, traits)

    @property
    def definition(self) -> Queue[Any]:
        """The queue as it is declared on the broker: bindings and dead letters included."""
        plan = self._plan
        name = self.queue_name
        queue: Queue[Any] = plan.queue or Queue(name)
        # Several consumers at once would mix the order that each of them keeps.
        grouped = self._engine.connection.traits.key_order == "group"
        of_dead_letters = self._holds_dead_letters(name)
        return replace(
            queue,
            single_active=queue.single_active or (self.ordered and grouped),
            **plan.properties,
            policy=self.policy,
            # A dead-letter queue gets dead letters alone, not the events they once were.
            bindings=() if of_dead_letters else plan.bindings,
            dead_letters=self.dead_letters,
            holds_dead_letters=queue.holds_dead_letters or of_dead_letters,
        )

    def __repr__(self) -> str:
        events = ", ".join(handler.pattern for handler in self._plan.handlers) or "nothing"
        name = self._plan.queue.name if self._plan.queue else self._plan.service or "unnamed"
        return f"<Worker {name!r} on {events}, {self.state}>"

    # -- the handle ----------------------------------------------------------------------------

    def stand_in(self, engine: Engine) -> Callable[[], None]:
        """Work for another engine, until the function that is returned is called."""
        own = self.__dict__.copy()
        self._work_for(engine)

        def go_back() -> None:
            self.__dict__.clear()
            self.__dict__.update(own)
            self._engine.adopt(self._plan.middleware)

        return go_back

    async def declare(self) -> None:
        """Make its queue without consuming; waits for a broker that is away."""
        await self._engine.connection.declare(self.build().definition)

    async def start(self) -> None:
        """Consume from now on, in the background. The queue exists when this returns."""
        async with self._starting:
            if self._state == "stopping":
                await self._stopped.wait()
            if self._state != "running":
                await self._start()

    async def _start(self) -> None:
        self.build()
        engine, stops, definition = self._engine, self._stops, self.definition
        await engine.connection.declare(definition)
        held_back = await self._held_back(definition.name)
        if self._stops != stops:
            return  # stopped before it could begin
        of_dead_letters = self._holds_dead_letters(definition.name)
        shift = Shift(
            engine, self._plan, definition, self.counters, of_dead_letters=of_dead_letters
        )
        await shift.open()
        if self._stops != stops:
            await shift.abandon()
            return
        self._shift = shift
        self._stopped.clear()
        self._state = "running"
        shift.begin()
        engine.facts.emit(WorkerStarted(worker=definition.name, queue=definition.name))
        if held_back is not None:  # no runner has had its first turn yet
            engine.pauses.hold(self, held_back)

    async def _held_back(self, queue: str) -> str | None:
        """Why it is not to consume, if somebody has paused its queue."""
        engine = self._engine
        if not engine.settings.presence:
            return None
        return await engine.pauses.before(queue, engine.facts.log, within=engine.settings.timeout)

    async def run(self) -> None:
        """Consume until `stop()` is called, until SIGTERM or SIGINT, or until cancelled; then
        finish what runs. A second signal stops at once. Raises `ConnectionLost` when the connection
        is given up, as the settings `auto_reconnect` and `reconnect_attempts` say."""
        signals = self._engine.signals
        with signals.listening():
            starting = asyncio.ensure_future(self.start())
            try:
                await _first(starting, signals.asked.wait())  # a broker may be away for long
                if starting.done():
                    starting.result()
                if self._state == "running":
                    working = asyncio.ensure_future(self.until_stopped())
                    await _first(working, signals.asked.wait())
                    if working.done():
                        working.result()
            finally:
                starting.cancel()
                stopping = asyncio.ensure_future(self.stop())
                await _first(asyncio.shield(stopping), signals.forced.wait())
                if not stopping.done():
                    await self.stop(drain=False)
                await stopping

    async def until_stopped(self) -> None:
        """Return once it has let go of everything, whoever stopped it. Raises `ConnectionLost` when
        the connection is given up, and leaves it to the caller to stop the worker then."""
        if self._state == "running":
            given_up = asyncio.ensure_future(self._engine.connection.given_up())
            await _first(self._stopped.wait(), given_up)
            if given_up.done() and self.state in ("running", "paused"):
                raise given_up.result()
        if self._state == "stopping":
            await self._stopped.wait()

    def pause(self, reason: str = "paused by hand") -> None:
        """Take no more messages for now; those not begun go back to the queue."""
        if self._shift is not None:
            self._shift.consumer.pause(reason)

    def resume(self) -> None:
        """Take messages again."""
        if self._shift is not None:
            self._shift.consumer.resume()

    async def stop(
        self, *, drain: bool = True, requeue_in_flight: bool = True, timeout: float | None = None
    ) -> None:
        """Stop consuming. `drain` waits for handlers, at most `timeout` seconds (default: the
        setting `shutdown_timeout`); those still at work then are cancelled and, with
        `requeue_in_flight`, their messages go back at once, not counted as failed.

        Giving up on this call does not give up the stop. A handler may stop its own worker: it is
        then not waited for, as it would wait for itself."""
        self._stops += 1
        shift = self._shift
        if shift is None:
            return
        if self._state == "running":
            limit = self._engine.settings.shutdown_timeout if timeout is None else timeout
            self._state = "stopping"
            shift.consumer.close()
            self._stopping = asyncio.ensure_future(
                self._stop(shift, drain=drain, requeue=requeue_in_flight, timeout=limit)
            )
        elif not drain:
            shift.hurry()
        if self._stopping is not None and not shift.consumer.crew.includes(asyncio.current_task()):
            await asyncio.shield(self._stopping)

    async def _stop(self, shift: Shift, *, drain: bool, requeue: bool, timeout: float) -> None:
        queue = shift.consumer.queue
        name = queue.name
        try:
            await shift.end(drain=drain, requeue=requeue, timeout=timeout)
        finally:
            if queue.auto_delete or queue.exclusive:
                self._engine.connection.forget(name)
            self._state = "stopped"
            self._shift = self._stopping = None
            self._stopped.set()
        self._engine.facts.emit(WorkerStopped(worker=name, queue=name))
        if self._engine.at_rest is not None:
            await self._engine.at_rest()


async def _first(*waits: Any) -> None:
    """Until the first is done; the others are given up."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
