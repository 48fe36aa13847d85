"""What is said about a worker before it runs: its queue, its handlers, its policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, TypedDict

from queuecraft.drivers.base import Traits
from queuecraft.model.checks import nearest
from queuecraft.model.errors import ConfigError
from queuecraft.model.event import Event
from queuecraft.model.naming import check_name, queue_name
from queuecraft.model.policy import DeadLetter, NoDeadLetter, NoRetry, Policy, Retry, is_number
from queuecraft.model.queue import Binding, DeadLetterTarget, Exchange, Queue
from queuecraft.model.settings import Settings
from queuecraft.runtime.handler import Handler, Middleware, checked
from queuecraft.runtime.registration import target_of
from queuecraft.runtime.router import check_ties

Ordering: TypeAlias = Literal["none", "key"]


class WorkerOptions(TypedDict, total=False):
    """What may be said about a worker beyond its queue."""

    service: str
    concurrency: int
    prefetch: int
    batch_size: int
    batch_wait: float
    ordering: Ordering
    retry: Retry | NoRetry
    dead_letter: DeadLetter | NoDeadLetter
    ttl: float
    ack_timeout: float
    max_redeliveries: int
    exchange: Exchange | str
    middleware: Iterable[Middleware]
    durable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A worker on paper. Every change gives a new one."""

    queue: Queue[Any] | None
    service: str | None
    concurrency: int
    prefetch: int | None
    batch_size: int | None
    batch_wait: float
    default_batch_size: int
    ordering: Ordering
    policy: Policy
    exchange: Exchange
    middleware: tuple[Middleware, ...] = ()
    handlers: tuple[Handler, ...] = ()
    bindings: tuple[Binding, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)
    """What was said of the queue besides its name, which may still be open."""

    @classmethod
    def of(cls, queue: str | Queue[Any] | None, options: WorkerOptions, settings: Settings) -> Plan:
        """The plan that a call of `qc.worker` stands for."""
        unknown = options.keys() - WorkerOptions.__annotations__.keys()
        if unknown:
            hint = nearest(min(unknown), WorkerOptions.__annotations__)
            raise ConfigError(f"unknown option {min(unknown)!r} of a worker; {hint}")
        if not isinstance(queue, (str, Queue, type(None))):
            raise ConfigError(f"worker({queue!r}): expected the name of a queue, or a Queue")
        return cls(
            queue=Queue(queue) if isinstance(queue, str) else queue,
            service=options.get("service"),
            concurrency=options.get("concurrency", settings.concurrency),
            prefetch=options.get("prefetch", settings.prefetch),
            batch_size=options.get("batch_size"),
            batch_wait=options.get("batch_wait", 0.0),
            default_batch_size=settings.batch_size,
            ordering=options.get("ordering", "none"),
            policy=Policy(
                retry=options.get("retry"),
                dead_letter=options.get("dead_letter"),
                ttl=options.get("ttl"),
                ack_timeout=options.get("ack_timeout"),
                max_redeliveries=options.get("max_redeliveries"),
            ),
            exchange=_exchange(options.get("exchange"), settings.default_exchange),
            middleware=checked(options.get("middleware", ())),
            properties={"durable": options["durable"]} if "durable" in options else {},
        )

    def check(self, traits: Traits) -> None:
        """Raise `ConfigError` for what cannot work on this broker."""
        _check_count("concurrency", self.concurrency)
        for name, value in (("prefetch", self.prefetch), ("batch_size", self.batch_size)):
            if value is not None:
                _check_count(name, value)
        _check_wait(self.batch_wait)
        if self.prefetch is not None and self.prefetch < self.concurrency:
            raise ConfigError(
                f"prefetch={self.prefetch} is less than concurrency={self.concurrency}; "
                "some handlers would never have work"
            )
        if self.prefetch is not None and self.prefetch < self.largest_batch:
            raise ConfigError(
                f"prefetch={self.prefetch} is less than batch_size={self.largest_batch}; no batch "
                "would ever be full"
            )
        if self.ordering not in ("none", "key"):
            raise ConfigError(f"ordering={self.ordering!r}: expected 'none' or 'key'")
        if self.ordering == "key" and traits.key_order == "none":
            raise ConfigError(f"{traits.name} keeps no order by key; leave out ordering='key'")
        if self.queue is not None:
            check_name("queue", self.queue.name, traits.max_name)

    def size_of(self, handler: Handler) -> int:
        """How many messages the handler gets at most at once."""
        if not handler.in_batches:
            return 1
        return handler.batch_size or self.batch_size or self.default_batch_size

    @property
    def largest_batch(self) -> int:
        """The most messages that any of its handlers gets at once."""
        return max(map(self.size_of, self.handlers), default=1)

    @property
    def enough(self) -> int:
        """How many messages it holds unless told otherwise: as many as run, and where those are
        batches as many again, so that the next ones fill while these are handled."""
        largest = self.largest_batch
        return self.concurrency * (1 if largest == 1 else 2 * largest)

    def with_handler(
        self,
        target: Event[Any] | Queue[Any] | str,
        function: Callable[..., Any],
        match: Mapping[str, Any] | None,
        batch_size: int | None = None,
        batch_wait: float | None = None,
    ) -> Plan:
        """The plan with one handler more, and what feeds it."""
        pattern, payload_type = target_of(target)
        check_name("queue" if isinstance(target, Queue) else "event", pattern)
        if batch_size is not None:
            _check_count("batch_size", batch_size)
        if batch_wait is not None:
            _check_wait(batch_wait)
        handler = Handler(
            pattern,
            function,
            payload_type,
            batch_size=batch_size,
            batch_wait=batch_wait,
            lists=(self.batch_size or 1) > 1,
        )
        handler.check(self.middleware)
        sizes = (batch_size, self.batch_size)
        if handler.in_batches and self.size_of(handler) == 1 and not any(sizes):
            raise ConfigError(
                f"handler {handler.name} of {pattern!r} takes a list, but nothing says how many: "
                "give it, or its worker, a batch_size"
            )
        check_ties([pattern, *(each.pattern for each in self.handlers)])
        plan = replace(self, handlers=(*self.handlers, handler))
        if isinstance(target, Queue):
            if match:
                raise ConfigError(f"queue {pattern!r} is sent to by name; leave out match=")
            return plan._for(target)
        given = target.exchange if isinstance(target, Event) else None
        exchange = _exchange(given, self.exchange)
        if match and exchange.type != "headers":
            raise ConfigError(
                f"match= needs a headers exchange; {exchange.name!r} is a {exchange.type} exchange"
            )
        binding = Binding(exchange, pattern, dict(match or {}))
        return replace(plan, bindings=(*self.bindings, binding))

    def name(self, traits: Traits) -> str:
        """The queue: as given, or named after its service or its events."""
        return queue_name(
            None if self.queue is None else self.queue.name,
            self.service,
            [handler.pattern for handler in self.handlers],
            limit=traits.max_name,
        )

    def policy_over(self, default: Policy) -> Policy:
        """What happens around its deliveries, with everything left open filled in."""
        return self.policy.over(default if self.queue is None else self.queue.policy.over(default))

    def dead_letters(self, name: str, policy: Policy, traits: Traits) -> DeadLetterTarget | None:
        """Where the dead letters of the queue go; None where they are off."""
        dead_letter = policy.dead_letter
        if not isinstance(dead_letter, DeadLetter):
            return None
        exchange = dead_letter.exchange_for(self.exchange.name)
        queue = dead_letter.queue_for(name)
        routing_key = dead_letter.routing_key_for(name)
        for kind, text in (("exchange", exchange), ("queue", queue), ("routing key", routing_key)):
            check_name(f"dead-letter {kind}", text, traits.max_name)
        if queue == name:
            raise ConfigError(
                f"queue {name!r} would be its own dead-letter queue, and its dead letters come "
                "round for ever; give DeadLetter another queue"
            )
        return DeadLetterTarget(exchange, queue, _literal(routing_key))

    def _for(self, queue: Queue[Any]) -> Plan:
        """The plan with a handler of what is sent to `queue`, which must be its own queue."""
        if self.queue is None or self.queue == Queue(queue.name):
            return replace(self, queue=queue)
        if self.queue.name != queue.name:
            raise ConfigError(
                f"worker {self.queue.name!r} does not consume queue {queue.name!r}, so the "
                "handler would never be called; give that queue a worker of its own"
            )
        return self


def _exchange(given: Exchange | str | None, default: Exchange) -> Exchange:
    if given is None:
        return default
    return given if isinstance(given, Exchange) else Exchange(given, default.type)


def _check_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{name}={value!r}: expected a whole number from 1 on")


def _check_wait(value: Any) -> None:
    if not is_number(value) or not 0 <= value < float("inf"):
        raise ConfigError(f"batch_wait={value!r}: expected seconds from 0 on")


def _literal(routing_key: str) -> str:
    # A queue named after its events may have wildcards in its name: as a binding they would
    # take the dead letters of other queues too.
    words = {"*": "%2A", "#": "%23"}
    return ".".join(words.get(word, word) for word in routing_key.split("."))
