"""What the publisher and all workers of one QueueCraft share."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from queuecraft.clock import Clock
from queuecraft.codec import Codec
from queuecraft.model.policy import Policy
from queuecraft.model.settings import Settings
from queuecraft.runtime.connection import Connection
from queuecraft.runtime.depends import Overrides
from queuecraft.runtime.facts import Facts
from queuecraft.runtime.handler import Middleware, checked
from queuecraft.runtime.pauses import Pauses
from queuecraft.runtime.publication import Publishing, PublishMiddleware
from queuecraft.runtime.publisher import Publisher
from queuecraft.runtime.signals import Signals
from queuecraft.runtime.watchdog import Watchdog


@dataclass(slots=True)
class Engine:
    """The parts, put together once by the facade."""

    settings: Settings
    clock: Clock
    facts: Facts
    codec: Codec
    connection: Connection
    publisher: Publisher
    signals: Signals
    watchdog: Watchdog
    pauses: Pauses
    policy: Policy
    publishing: Publishing
    middleware: list[Middleware] = field(default_factory=list)
    overrides: Overrides = field(default_factory=Overrides)
    at_rest: Callable[[], Awaitable[None]] | None = None
    """What is called when a worker has stopped."""
    closing: list[Callable[[], Awaitable[Any]]] = field(default_factory=list)
    """What is called in the end, for middleware that holds something open."""
    watched: list[Any] = field(default_factory=list)
    """Middleware that says in `trouble` why nothing can be done; None while all is well."""

    @property
    def trouble(self) -> str | None:
        """Why nothing can be done, if middleware says so."""
        return next(filter(None, (each.trouble for each in self.watched)), None)

    def use(self, middleware: Iterable[Middleware]) -> None:
        """Wrap every handler of workers started from now on."""
        given = checked(middleware)
        self.middleware += given
        self.adopt(given)

    def use_publishing(self, middleware: Iterable[PublishMiddleware]) -> None:
        """Wrap publishing from now on."""
        given = tuple(middleware)
        self.publishing.add(given)
        self.adopt(given)

    def adopt(self, middleware: Iterable[Middleware | PublishMiddleware]) -> None:
        """Let middleware that asks for it know whom it works for: an object, or the object whose
        method it is, may have an `attach(engine)` and an async `close()`."""
        for each in middleware:
            whole: Any = getattr(each, "__self__", each)
            if callable(attach := getattr(whole, "attach", None)):
                attach(self)
            close = getattr(whole, "close", None)
            if inspect.iscoroutinefunction(close) and close not in self.closing:
                self.closing.append(close)
            if hasattr(whole, "trouble") and whole not in self.watched:
                self.watched.append(whole)
