"""Handlers as methods of a class: `@channel` names the queue, `@consume` the events."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from queuecraft.model.errors import ConfigError
from queuecraft.model.event import Event
from queuecraft.model.queue import Queue
from queuecraft.model.types import T
from queuecraft.runtime.registration import MethodRegistration, target_of

C = TypeVar("C", bound=type)

_CHANNEL = "__queuecraft_channel__"
_CONSUMES = "__queuecraft_consumes__"


@dataclass(frozen=True, slots=True)
class Channel:
    """What `@channel` says of a class: the queue and the options of its worker."""

    queue: str | Queue[Any] | None
    options: dict[str, Any]


def channel(queue: str | Queue[Any] | None = None, **options: Any) -> Callable[[C], C]:
    """Make a class the handlers of a queue; takes the options of `qc.worker`.

    >>> from queuecraft import Event, QueueCraft, channel, consume
    >>> order_placed = Event("order.placed", dict)
    >>> @channel("billing", concurrency=4)
    ... class Billing:
    ...     @consume(order_placed)
    ...     async def charge(self, order: dict) -> None: ...
    >>> QueueCraft().include(Billing()).queue_name
    'billing'
    """

    def mark(cls: C) -> C:
        setattr(cls, _CHANNEL, Channel(queue, options))
        return cls

    return mark


@overload
def consume(event: Event[T]) -> MethodRegistration[T]: ...
@overload
def consume(event: Queue[T]) -> MethodRegistration[T]: ...
@overload
def consume(event: str) -> MethodRegistration[Any]: ...
def consume(event: Event[Any] | Queue[Any] | str) -> MethodRegistration[Any]:
    """Make a method of a `@channel` class the handler of an event, a queue or a pattern.

    >>> @consume("order.*")
    ... async def charge(self, order: dict) -> None: ...
    """
    target_of(event)

    def mark(method: Callable[..., Any]) -> None:
        setattr(method, _CONSUMES, (*getattr(method, _CONSUMES, ()), event))

    return MethodRegistration(mark)


def channel_of(instance: object) -> Channel:
    """What the class of `instance` was marked with."""
    if inspect.isclass(instance):
        name = instance.__name__
        raise ConfigError(f"include() takes an instance: qc.include({name}())")
    found = getattr(type(instance), _CHANNEL, None)
    if not isinstance(found, Channel):
        name = type(instance).__name__
        raise ConfigError(f"class {name} has no @channel; write @channel('billing') above it")
    return found


def handlers_of(instance: object) -> list[tuple[Any, Callable[..., Any]]]:
    """The bound methods marked with `@consume`, with what each consumes."""
    found: list[tuple[Any, Callable[..., Any]]] = [
        (event, method)
        for _, method in inspect.getmembers(instance, inspect.ismethod)
        for event in getattr(method, _CONSUMES, ())
    ]
    if not found:
        name = type(instance).__name__
        raise ConfigError(f"class {name} has no method with @consume, so nothing to do")
    return found
