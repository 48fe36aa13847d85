"""What is being published, as middleware around publishing sees it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

from queuecraft.model.errors import ConfigError, PublishError, QueueError, UnsupportedFeature
from queuecraft.model.event import Event
from queuecraft.model.queue import Queue
from queuecraft.model.types import HeaderValue
from queuecraft.runtime.options import PublishOptions
from queuecraft.runtime.publisher import Publisher

TOGETHER = 500  # of `publish_many`, on their way through middleware at once


@dataclass(slots=True)
class Publication:
    """A payload on its way to an event or a queue. Middleware may change it before it goes on.

    >>> publication = Publication("order.placed", {"id": "o-1"}, {})
    >>> publication.set_header("x-tenant", "acme")
    >>> publication.name, publication.options["headers"]
    ('order.placed', {'x-tenant': 'acme'})
    """

    target: Event[Any] | Queue[Any] | str
    payload: object
    options: PublishOptions

    @property
    def name(self) -> str:
        """Of the event, or of the queue."""
        return self.target if isinstance(self.target, str) else self.target.name

    def set_header(self, name: str, value: HeaderValue) -> None:
        """Add a header to the message, or replace it."""
        self.options["headers"] = {**(self.options.get("headers") or {}), name: value}


Publish: TypeAlias = Callable[[Publication], Awaitable[str]]
"""What middleware around publishing wraps: returns the id of the message once the broker has it."""

PublishMiddleware: TypeAlias = Callable[[Publish], Publish]
"""Takes the publishing of a message and gives back another that does more.

>>> def stamped(publish: Publish) -> Publish:
...     async def stamping(publication):
...         publication.set_header("x-tenant", "acme")
...         return await publish(publication)
...     return stamping
"""


class PublishOne(Protocol):
    """Publishes one payload; returns its id."""

    def __call__(
        self, target: object, payload: object, options: PublishOptions, /
    ) -> Awaitable[str]: ...


class PublishMany(Protocol):
    """Publishes many payloads; an id or an error for each."""

    def __call__(
        self,
        target: object,
        payloads: Iterable[object],
        options: PublishOptions,
        /,
        *,
        atomic: bool = False,
    ) -> Awaitable[list[str | QueueError]]: ...


class Way(NamedTuple):
    """How payloads get to the broker, one at a time and many."""

    publish: PublishOne
    publish_many: PublishMany


class Publishing:
    """The way from a payload to the broker, middleware and all; without any, the publisher's own.

    It is put together anew whenever middleware is added, and never while something is published.
    Middleware with a method `enclose`, which takes a `Way` and gives back another, is around all
    the rest: `publish_many` stays one call to it, also an atomic one.
    """

    def __init__(self, publisher: Publisher, middleware: Iterable[PublishMiddleware] = ()) -> None:
        self.middleware: list[PublishMiddleware] = []
        self.publish: PublishOne = publisher.publish
        """Publishes one payload."""
        self.publish_many: PublishMany = publisher.publish_many
        """Publishes many."""
        self._publisher = publisher
        self.add(middleware)

    def add(self, middleware: Iterable[PublishMiddleware]) -> None:
        """Put more of it around publishing, inside what is there already."""
        given = list(middleware)
        if not given:
            return
        chain: Publish = self._innermost
        around = [each for each in self.middleware + given if not hasattr(each, "enclose")]
        for wrap in reversed(around):
            wrapped: object = wrap(chain)
            if inspect.iscoroutine(wrapped):
                wrapped.close()
                raise ConfigError(f"middleware {wrap!r} is async; only what it returns should be")
            if not callable(wrapped):
                raise ConfigError(f"middleware {wrap!r} returned {wrapped!r}, not a function")
            chain = wrapped
        self.middleware += given
        self._chain = chain
        way = Way(self._publisher.publish, self._publisher.publish_many)
        if around:
            way = Way(self._through, self._many_through)
        self.publish, self.publish_many = self._enclosed(way)

    def around(self, publish: PublishOne) -> PublishOne:
        """Another way to keep a message, with what encloses publishing around it."""
        return self._enclosed(Way(publish, self.publish_many)).publish

    def _enclosed(self, way: Way) -> Way:
        for each in reversed(self.middleware):
            if (enclose := getattr(each, "enclose", None)) is not None:
                way = enclose(way)
        return way

    def _innermost(self, publication: Publication) -> Awaitable[str]:
        return self._publisher.publish(publication.target, publication.payload, publication.options)

    async def _through(self, target: object, payload: object, options: PublishOptions) -> str:
        known = cast("Event[Any] | Queue[Any] | str", target)
        given = cast("PublishOptions", dict(options))  # middleware may change it
        return await self._chain(Publication(known, payload, given))

    async def _many_through(
        self,
        target: object,
        payloads: Iterable[object],
        options: PublishOptions,
        *,
        atomic: bool = False,
    ) -> list[str | QueueError]:
        if atomic:
            raise UnsupportedFeature(
                "middleware is around publishing, which sees one message at a time; leave out "
                "atomic=True",
                operation="publish_many",
            )
        results: list[str | QueueError] = []
        source = iter(payloads)
        while chunk := list(islice(source, TOGETHER)):
            each = [self._through(target, payload, options) for payload in chunk]
            answers: Sequence[object] = await asyncio.gather(*each, return_exceptions=True)
            results += [_told(answer) for answer in answers]
        return results


def _told(answer: object) -> str | QueueError:
    if isinstance(answer, str | QueueError):
        return answer
    if isinstance(answer, Exception):
        failed = PublishError(f"middleware failed: {answer!r}", operation="publish_many")
        failed.__cause__ = answer
        return failed
    if isinstance(answer, BaseException):
        raise answer
    return PublishError(
        f"middleware returned {answer!r}, not the id of a message; return what publishing gives",
        outcome="unknown",
        operation="publish_many",
    )
