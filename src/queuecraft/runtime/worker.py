"""Workers: handlers on a queue, and the handle to start, pause and stop them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Concatenate, Literal, Self, TypeAlias, TypedDict, overload

from queuecraft.model.errors import ConfigError
from queuecraft.model.event import Event
from queuecraft.model.message import Message
from queuecraft.model.metadata import QueueMetadata
from queuecraft.model.naming import check_name, queue_name
from queuecraft.model.policy import DeadLetter, NoDeadLetter, NoRetry, Policy, Retry
from queuecraft.model.queue import Binding, DeadLetterTarget, Exchange, Queue
from queuecraft.model.types import T
from queuecraft.runtime.consumer import Consumer
from queuecraft.runtime.control import ByHand
from queuecraft.runtime.counters import Counters
from queuecraft.runtime.engine import Engine
from queuecraft.runtime.facts import WorkerStarted, WorkerStopped
from queuecraft.runtime.handler import Handler, Middleware
from queuecraft.runtime.registration import Registration, target_of
from queuecraft.runtime.router import Router, check_ties
from queuecraft.runtime.threads import Threads

Ordering: TypeAlias = Literal["none", "key"]
State: TypeAlias = Literal["new", "running", "paused", "stopping", "stopped"]


class WorkerOptions(TypedDict, total=False):
    """What may be said about a worker beyond its queue."""

    service: str
    concurrency: int
    prefetch: int
    ordering: Ordering
    retry: Retry | NoRetry
    dead_letter: DeadLetter | NoDeadLetter
    ttl: float
    ack_timeout: float
    max_redeliveries: int
    exchange: Exchange | str
    middleware: Iterable[Middleware]
    durable: bool


@dataclass(frozen=True, slots=True)
class _Plan:
    queue: Queue[Any] | None
    service: str | None
    concurrency: int
    prefetch: int | None
    ordering: Ordering
    policy: Policy
    exchange: Exchange
    middleware: tuple[Middleware, ...] = ()
    durable: bool = True
    handlers: tuple[Handler, ...] = ()
    bindings: tuple[Binding, ...] = field(default=())


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
        self, engine: Engine, queue: str | Queue[Any] | None, options: WorkerOptions
    ) -> None:
        unknown = options.keys() - WorkerOptions.__annotations__.keys()
        if unknown:
            known = ", ".join(WorkerOptions.__annotations__)
            raise ConfigError(f"unknown option {min(unknown)!r} of a worker; known: {known}")
        settings = engine.settings
        self._engine = engine
        self._plan = _Plan(
            queue=Queue(queue) if isinstance(queue, str) else queue,
            service=options.get("service"),
            concurrency=options.get("concurrency", settings.concurrency),
            prefetch=options.get("prefetch", settings.prefetch),
            ordering=options.get("ordering", "none"),
            policy=Policy(
                retry=options.get("retry"),
                dead_letter=options.get("dead_letter"),
                ttl=options.get("ttl"),
                ack_timeout=options.get("ack_timeout"),
                max_redeliveries=options.get("max_redeliveries"),
            ),
            exchange=_exchange(options.get("exchange"), settings.default_exchange),
            middleware=tuple(options.get("middleware", ())),
            durable=options.get("durable", True),
        )
        self._check(self._plan)
        self.counters = Counters()
        self._consumer: Consumer | None = None
        self._threads: Threads | None = None
        self._state: State = "new"
        self._stopped = asyncio.Event()

    # -- handlers ------------------------------------------------------------------------------

    @overload
    def on(
        self, event: Event[T] | Queue[T], *, match: Mapping[str, Any] | None = None
    ) -> Registration[T]: ...
    @overload
    def on(self, event: str, *, match: Mapping[str, Any] | None = None) -> Registration[Any]: ...
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
        event: str,
        handler: Callable[..., object],
        *,
        match: Mapping[str, Any] | None = None,
    ) -> Self: ...
    def on(
        self,
        event: Event[Any] | Queue[Any] | str,
        handler: Callable[..., object] | None = None,
        *,
        match: Mapping[str, Any] | None = None,
    ) -> Registration[Any] | Self:
        """Handle an event, or every event of a pattern with `*` and `#`; as a decorator, or with
        the function as second argument. `match` are the header values wanted of a headers
        exchange.

        >>> from queuecraft import Message, QueueCraft
        >>> audit = QueueCraft().worker("audit")
        >>> @audit.on("order.#")
        ... async def note(message: Message) -> None: ...
        """
        if handler is None:
            return Registration(lambda function: self._add(event, function, match))
        self._add(event, handler, match)
        return self

    def _add(
        self,
        target: Event[Any] | Queue[Any] | str,
        function: Callable[..., Any],
        match: Mapping[str, Any] | None,
    ) -> None:
        pattern, payload_type = target_of(target)
        check_name("event", pattern)
        handler = Handler(pattern, function, payload_type)
        check_ties([pattern, *(each.pattern for each in self._plan.handlers)])
        bindings = self._plan.bindings
        if not isinstance(target, Queue):
            given = target.exchange if isinstance(target, Event) else None
            exchange = _exchange(given, self._plan.exchange)
            bindings += (Binding(exchange, pattern, dict(match or {})),)
        self._change(handlers=(*self._plan.handlers, handler), bindings=bindings)

    # -- the fluent way to say the same options ------------------------------------------------

    def queue(
        self,
        *,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        max_priority: int | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> Self:
        """What the queue itself is like."""
        queue = self._plan.queue or Queue(self.queue_name)
        changed: Queue[Any] = replace(
            queue,
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            max_priority=max_priority,
            arguments=dict(arguments or {}),
        )
        return self._change(queue=changed, durable=durable)

    def concurrency(self, handlers: int) -> Self:
        """How many handlers run at once."""
        return self._change(concurrency=handlers)

    def prefetch(self, messages: int) -> Self:
        """How many messages may be received and not yet settled."""
        return self._change(prefetch=messages)

    def ordering(self, ordering: Ordering) -> Self:
        """`"key"`: messages of one key in order, keys side by side."""
        return self._change(ordering=ordering)

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
        check_name("queue", self.queue_name, self._engine.connection.traits.max_name)
        return self

    def _policy(self, policy: Policy) -> Self:
        return self._change(policy=policy.over(self._plan.policy))

    def _change(self, **changes: Any) -> Self:
        if self._state == "running":
            raise ConfigError(f"worker {self.queue_name!r} is running; stop it before changing it")
        plan = replace(self._plan, **changes)
        self._check(plan)
        self._plan = plan
        return self

    def _check(self, plan: _Plan) -> None:
        for name in ("concurrency", "prefetch"):
            value = getattr(plan, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ConfigError(f"{name}={value!r}: expected a whole number from 1 on")
        if plan.prefetch is not None and plan.prefetch < plan.concurrency:
            raise ConfigError(
                f"prefetch={plan.prefetch} is less than concurrency={plan.concurrency}; "
                "some handlers would never have work"
            )
        if plan.ordering not in ("none", "key"):
            raise ConfigError(f"ordering={plan.ordering!r}: expected 'none' or 'key'")
        traits = self._engine.connection.traits
        if plan.ordering == "key" and traits.key_order == "none":
            raise ConfigError(f"{traits.name} keeps no order by key; leave out ordering='key'")
        if plan.queue is not None:
            check_name("queue", plan.queue.name, traits.max_name)

    # -- what it is ----------------------------------------------------------------------------

    @property
    def queue_name(self) -> str:
        """The queue it consumes: as given, or named after its service or its events."""
        plan = self._plan
        return queue_name(
            None if plan.queue is None else plan.queue.name,
            plan.service,
            [handler.pattern for handler in plan.handlers],
            limit=self._engine.connection.traits.max_name,
        )

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
        paused = self._consumer is not None and self._consumer.paused is not None
        return "paused" if paused and self._state == "running" else self._state

    @property
    def paused(self) -> str | None:
        """Why it takes no messages, if it does not."""
        return None if self._consumer is None else self._consumer.paused

    @property
    def in_flight(self) -> int:
        """Messages received and not yet settled."""
        return 0 if self._consumer is None else self._consumer.held

    @property
    def metadata(self) -> QueueMetadata:
        """The queue and its handlers, for tools."""
        return QueueMetadata(
            self.queue_name,
            self._plan.exchange.name,
            tuple(handler.metadata for handler in self._plan.handlers),
        )

    @property
    def policy(self) -> Policy:
        """What happens around its deliveries, with everything left open filled in."""
        queue = self._plan.queue
        below = self._engine.policy if queue is None else queue.policy.over(self._engine.policy)
        return self._plan.policy.over(below)

    @property
    def definition(self) -> Queue[Any]:
        """The queue as it is declared on the broker: bindings and dead letters included."""
        plan = self._plan
        name = self.queue_name
        queue: Queue[Any] = plan.queue or Queue(name)
        dead_letter = self.policy.dead_letter
        target = None
        if isinstance(dead_letter, DeadLetter):
            target = DeadLetterTarget(
                dead_letter.exchange_for(plan.exchange.name),
                dead_letter.queue_for(name),
                dead_letter.routing_key_for(name),
            )
            for kind, text in (("exchange", target.exchange), ("queue", target.queue)):
                check_name(f"dead-letter {kind}", text, self._engine.connection.traits.max_name)
        return replace(
            queue,
            durable=queue.durable and plan.durable,
            policy=self.policy,
            bindings=plan.bindings,
            dead_letters=target,
        )

    def __repr__(self) -> str:
        events = ", ".join(handler.pattern for handler in self._plan.handlers) or "nothing"
        name = self._plan.queue.name if self._plan.queue else self._plan.service or "unnamed"
        return f"<Worker {name!r} on {events}, {self.state}>"

    # -- the handle ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Consume from now on, in the background. The queue exists when this returns."""
        if self._state in ("running", "stopping"):
            return
        self.build()
        engine = self._engine
        definition = self.definition
        await engine.connection.declare(definition)
        plan = self._plan
        control = ByHand()
        self._threads = Threads(definition.name)
        middleware = (*engine.middleware, *plan.middleware)
        calls = [
            (handler, handler.compile(engine.codec, control, self._threads, middleware))
            for handler in plan.handlers
        ]
        self._consumer = Consumer(
            definition.name,
            definition,
            self.policy,
            Router([(handler.pattern, call) for handler, call in calls]),
            engine.connection,
            self.counters,
            engine.facts,
            engine.clock,
            concurrency=plan.concurrency,
            prefetch=plan.prefetch or plan.concurrency,
            ordered=self.ordered,
            threaded=frozenset(call for handler, call in calls if handler.sync),
        )
        control.serve(self._consumer)
        self._stopped.clear()
        self._state = "running"
        engine.watchdog.start()
        self._consumer.start()
        engine.facts.emit(WorkerStarted(worker=definition.name, queue=definition.name))

    async def run(self) -> None:
        """Consume until `stop()` is called, or until SIGTERM or SIGINT; then finish what runs.
        A second signal stops at once."""
        signals = self._engine.signals
        with signals.listening():
            await self.start()
            await _first(self._stopped.wait(), signals.asked.wait())
            stopping = asyncio.ensure_future(self.stop())
            await _first(asyncio.shield(stopping), signals.forced.wait())
            if not stopping.done():
                await self.stop(drain=False)
            await stopping

    def pause(self, reason: str = "paused by hand") -> None:
        """Take no more messages for now; those not begun go back to the queue."""
        if self._consumer is not None:
            self._consumer.pause(reason)

    def resume(self) -> None:
        """Take messages again."""
        if self._consumer is not None:
            self._consumer.resume()

    async def stop(
        self, *, drain: bool = True, requeue_in_flight: bool = True, timeout: float | None = None
    ) -> None:
        """Stop consuming. `drain` waits for handlers, at most `timeout` seconds (default: the
        setting `shutdown_timeout`); those still at work then are cancelled and, with
        `requeue_in_flight`, their messages go back at once, not counted as failed."""
        consumer = self._consumer
        if consumer is None or self._state not in ("running", "stopping"):
            return
        if self._state == "stopping":
            if not drain:
                consumer.force()
            await self._stopped.wait()
            return
        self._state = "stopping"
        try:
            await consumer.stop(
                drain=drain,
                requeue=requeue_in_flight,
                timeout=self._engine.settings.shutdown_timeout if timeout is None else timeout,
            )
        finally:
            self._state = "stopped"
            self._consumer = None
            if self._threads is not None:
                self._threads.close()
            self._stopped.set()
        name = consumer.queue.name
        self._engine.facts.emit(WorkerStopped(worker=name, queue=name))


def _exchange(given: Exchange | str | None, default: Exchange) -> Exchange:
    if given is None:
        return default
    return given if isinstance(given, Exchange) else Exchange(given, default.type)


async def _first(*waits: Any) -> None:
    """Until the first is done; the others are given up."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
