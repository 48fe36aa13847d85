"""Where messages wait: queues, the exchanges that feed them, and the bindings between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeAlias

from queuecraft.model.errors import ConfigError
from queuecraft.model.naming import check_name
from queuecraft.model.policy import Policy
from queuecraft.model.types import T

ExchangeType: TypeAlias = Literal["topic", "direct", "fanout", "headers"]
EXCHANGE_TYPES: tuple[ExchangeType, ...] = ("topic", "direct", "fanout", "headers")


@dataclass(frozen=True, slots=True)
class Exchange:
    """Where events are published to; its type decides how bindings are matched.

    >>> Exchange("audit", "fanout")
    Exchange(name='audit', type='fanout', durable=True, auto_delete=False)
    """

    name: str
    type: ExchangeType = "topic"
    durable: bool = True
    auto_delete: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)

    def __post_init__(self) -> None:
        check_name("exchange", self.name)
        if self.type not in EXCHANGE_TYPES:
            known = ", ".join(EXCHANGE_TYPES)
            raise ConfigError(f"exchange type {self.type!r} is unknown; use one of {known}")


@dataclass(frozen=True, slots=True)
class Binding:
    """What a queue wants of an exchange: a pattern, or header values for a headers exchange."""

    exchange: Exchange
    pattern: str
    headers: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if (mode := self.headers.get("x-match", "all")) not in ("all", "any"):
            raise ConfigError(f"x-match={mode!r}: expected 'all' or 'any'")


@dataclass(frozen=True)  # not slots: `Queue[int]("n", int)` could not note its type argument
class Queue(Generic[T]):
    """Names a queue and the type of what is sent to it; `policy` is what its consumers start from.

    >>> from queuecraft import Policy
    >>> invoices = Queue("invoices", dict, policy=Policy(ttl=3600))
    >>> invoices.name, invoices.policy.ttl
    ('invoices', 3600)
    """

    name: str
    type: type[T] | None = None
    durable: bool = True
    exclusive: bool = False
    auto_delete: bool = False
    max_priority: int | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)
    policy: Policy = Policy()
    bindings: tuple[Binding, ...] = ()
    dead_letters: DeadLetterTarget | None = None
    single_active: bool = False
    """Whether only one consumer at a time is given messages, and the others stand by."""
    holds_dead_letters: bool = False
    """Whether the dead letters of another queue go there; always, if its name ends in `.dlq`. So it
    may be made by whoever declares that other queue, and knows only its name."""

    def __post_init__(self) -> None:
        check_name("queue", self.name)


@dataclass(frozen=True, slots=True)
class DeadLetterTarget:
    """Where the dead letters of one queue go, all names resolved."""

    exchange: str
    queue: str
    routing_key: str
