"""Handlers as methods of a class: `@channel` names the queue, `@consume` the events."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, Unpack, overload

from queuecraft.model.errors import ConfigError
from queuecraft.model.event import Event
from queuecraft.model.queue import Queue
from queuecraft.model.types import T
from queuecraft.runtime.plan import WorkerOptions
from queuecraft.runtime.registration import MethodRegistration, target_of

C = TypeVar("C", bound=type)

_CHANNEL = "__queuecraft_channel__"
_CONSUMES = "__queuecraft_consumes__"


@dataclass(frozen=True, slots=True)
class Channel:
    """What `@channel` says of a class: the queue and the options of its worker."""

    queue: str | Queue[Any] | None
    options: WorkerOptions


class Consumed(NamedTuple):
    """What `@consume` says of a method: the event, and the header values wanted with it."""

    event: Event[Any] | Queue[Any] | str
    match: Mapping[str, Any] | None
    batch_size: int | None = None
    batch_wait: float | None = None


def channel(
    queue: str | Queue[Any] | None = None, **options: Unpack[WorkerOptions]
) -> Callable[[C], C]:
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

    if inspect.isclass(queue):
        name: str = getattr(queue, "__name__", "")
        raise ConfigError(f"write @channel({name.lower()!r}), with the name of the queue")

    def mark(cls: C) -> C:
        setattr(cls, _CHANNEL, Channel(queue, options))
        return cls

    return mark


@overload
def consume(
    event: Event[T] | Queue[T],
    *,
    batch_size: int | None = None,
    batch_wait: float | None = None,
    match: Mapping[str, Any] | None = None,
) -> MethodRegistration[T]: ...
@overload
def consume(
    event: str,
    *,
    batch_size: int | None = None,
    batch_wait: float | None = None,
    match: Mapping[str, Any] | None = None,
) -> MethodRegistration[Any]: ...
def consume(
    event: Event[Any] | Queue[Any] | str,
    *,
    batch_size: int | None = None,
    batch_wait: float | None = None,
    match: Mapping[str, Any] | None = None,
) -> MethodRegistration[Any]:
    """Make a method of a `@channel` class the handler of an event, a queue or a pattern; takes
    the options of `worker.on`.

    >>> @consume("order.*")
    ... async def charge(self, order: dict) -> None: ...
    """
    target_of(event)

    consumed = Consumed(event, match, batch_size, batch_wait)

    def mark(method: Callable[..., Any]) -> None:
        setattr(method, _CONSUMES, (*getattr(method, _CONSUMES, ()), consumed))

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


def handlers_of(instance: object) -> list[tuple[Consumed, Callable[..., Any]]]:
    """The methods marked with `@consume`, in the order they are written."""
    kind = type(instance)
    found: list[tuple[Consumed, Callable[..., Any]]] = []
    for name in dict.fromkeys(name for cls in reversed(kind.__mro__) for name in vars(cls)):
        marked = inspect.getattr_static(kind, name)  # no property is touched
        inner = getattr(marked, "__func__", None)  # of a static or class method
        marks: tuple[Consumed, ...] = getattr(marked, _CONSUMES, getattr(inner, _CONSUMES, ()))
        found += [(mark, getattr(instance, name)) for mark in marks]
    if not found:
        raise ConfigError(f"class {kind.__name__} has no method with @consume, so nothing to do")
    return found
