"""Payloads and handlers, written down so that type checkers see a wrong one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, Generic, Never, ParamSpec, TypeAlias, TypeVar, overload

from queuecraft.model.event import Event
from queuecraft.model.message import Message
from queuecraft.model.queue import Queue
from queuecraft.model.types import T

P = ParamSpec("P")
R = TypeVar("R")


class Nobody:
    """Nothing is ever one of these."""


Given: TypeAlias = T | Callable[[T, Nobody], Never]
"""A payload of type T. The second half fits nothing. It makes mypy look at the event before it
looks at the payload, so that a dict fits a TypedDict and an error says what was expected."""


class Registration(Generic[T]):
    """The decorator that `worker.on(event)` gives: takes functions of T, or of `Message[T]`, or,
    where the worker has a batch size, of a list of either."""

    def __init__(self, register: Callable[[Callable[..., Any]], object]) -> None:
        self._register = register

    @overload
    def __call__(
        self, handler: Callable[Concatenate[T, P], R], /
    ) -> Callable[Concatenate[T, P], R]: ...
    @overload
    def __call__(
        self, handler: Callable[Concatenate[Message[T], P], R], /
    ) -> Callable[Concatenate[Message[T], P], R]: ...
    @overload
    def __call__(
        self, handler: Callable[Concatenate[list[T], P], R], /
    ) -> Callable[Concatenate[list[T], P], R]: ...
    @overload
    def __call__(
        self, handler: Callable[Concatenate[list[Message[T]], P], R], /
    ) -> Callable[Concatenate[list[Message[T]], P], R]: ...
    def __call__(self, handler: Callable[..., Any], /) -> Callable[..., Any]:
        """Register the function and give it back as it is."""
        self._register(handler)
        return handler


class BatchRegistration(Generic[T]):
    """The decorator that `worker.on(event, batch_size=100)` gives: takes functions of a list."""

    def __init__(self, register: Callable[[Callable[..., Any]], object]) -> None:
        self._register = register

    @overload
    def __call__(
        self, handler: Callable[Concatenate[list[T], P], R], /
    ) -> Callable[Concatenate[list[T], P], R]: ...
    @overload
    def __call__(
        self, handler: Callable[Concatenate[list[Message[T]], P], R], /
    ) -> Callable[Concatenate[list[Message[T]], P], R]: ...
    def __call__(self, handler: Callable[..., Any], /) -> Callable[..., Any]:
        """Register the function and give it back as it is."""
        self._register(handler)
        return handler


class MethodRegistration(Generic[T]):
    """The decorator that `consume(event)` gives: the same, for methods."""

    def __init__(self, mark: Callable[[Callable[..., Any]], object]) -> None:
        self._mark = mark

    @overload
    def __call__(
        self, handler: Callable[Concatenate[Any, T, P], R], /
    ) -> Callable[Concatenate[Any, T, P], R]: ...
    @overload
    def __call__(
        self, handler: Callable[Concatenate[Any, Message[T], P], R], /
    ) -> Callable[Concatenate[Any, Message[T], P], R]: ...
    @overload
    def __call__(
        self, handler: Callable[Concatenate[Any, list[T], P], R], /
    ) -> Callable[Concatenate[Any, list[T], P], R]: ...
    @overload
    def __call__(
        self, handler: Callable[Concatenate[Any, list[Message[T]], P], R], /
    ) -> Callable[Concatenate[Any, list[Message[T]], P], R]: ...
    def __call__(self, handler: Callable[..., Any], /) -> Callable[..., Any]:
        """Mark the method and give it back as it is."""
        self._mark(handler)
        return handler


def target_of(target: object) -> tuple[str, Any]:
    """The pattern and payload type that an event, a queue or a plain string stands for."""
    match target:
        case Event():
            return target.name, target.type
        case Queue():
            return target.name, target.type or Any
        case str():
            return target, Any
        case _:
            kind = type(target).__name__
            raise TypeError(f"on() takes an Event, a Queue or a pattern, not {kind}")
