"""How a payload becomes a message, worked out once for each event and queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from queuecraft.clock import Clock
from queuecraft.codec import Codec
from queuecraft.codec.reason import shorten
from queuecraft.drivers.base import Exchange, Outgoing
from queuecraft.model.errors import PayloadError, QueueError, UnsupportedFeature
from queuecraft.model.event import Event
from queuecraft.model.ids import new_id, new_ids
from queuecraft.model.naming import check_name
from queuecraft.model.queue import Queue
from queuecraft.model.settings import Settings
from queuecraft.runtime.connection import Connection
from queuecraft.runtime.options import MAX_KEY, Details, is_text

REMEMBERED = 4096  # recipes; events and names may be made on the fly, from user data


class Recipe:
    """How messages of one event, or for one queue, are made."""

    __slots__ = (
        "_encode",
        "_key",
        "_now",
        "content_type",
        "exchange",
        "exchange_name",
        "name",
        "prepared",
        "queue",
    )

    def __init__(
        self,
        name: str,
        payload_type: Any,
        codec: Codec,
        now: Callable[[], float],
        *,
        key: Callable[[Any], str] | None = None,
        exchange: Exchange | None = None,
        queue: str | None = None,
    ) -> None:
        self.name = name
        self.exchange = exchange
        self.exchange_name = "" if exchange is None else exchange.name
        self.queue = queue
        self.content_type = codec.content_type_for(payload_type)
        self.prepared = exchange is None
        self._encode = codec.encoder(payload_type)
        self._key = key
        self._now = now

    def make(self, payload: object) -> Outgoing:
        """The message for a payload, with no options: the path that must be cheap."""
        try:
            body, encoding = self._encode(payload)
        except PayloadError as error:
            raise self._located(error) from error.__cause__
        return Outgoing(
            body,
            new_id(),
            self.exchange_name,
            self.name,
            self._now(),
            self.content_type,
            encoding,
            self._key_of(payload) if self._key is not None else None,
            self.queue,
        )

    def make_with(self, payload: object, details: Details) -> Outgoing:
        """The message for a payload, with everything the caller asked for."""
        try:
            body, encoding = self._encode(payload)
        except PayloadError as error:
            raise self._located(error) from error.__cause__
        key = details.key
        if key is None and self._key is not None:
            key = self._key_of(payload)
        return Outgoing(
            body,
            details.message_id or new_id(),
            self.exchange_name,
            self.name,
            details.timestamp,
            self.content_type,
            encoding,
            key,
            self.queue,
            details.headers,
            details.due_at,
            details.expires_at,
            details.priority,
            details.persistent,
            details.correlation_id,
            details.reply_to,
        )

    def make_many(
        self, payloads: Sequence[object], details: Details | None
    ) -> tuple[list[Outgoing], dict[int, QueueError]]:
        """The messages for many payloads, and what was wrong with which: what can be done once
        for all of them is."""
        messages: list[Outgoing] = []
        errors: dict[int, QueueError] = {}
        if details is not None:
            for at, payload in enumerate(payloads):
                try:
                    messages.append(self.make_with(payload, details))
                except PayloadError as error:
                    errors[at] = error
            return messages, errors
        encode, key_of = self._encode, self._key and self._key_of
        exchange, name, kind, queue = self.exchange_name, self.name, self.content_type, self.queue
        now = self._now()
        ids = new_ids(len(payloads))
        for at, payload in enumerate(payloads):
            try:
                body, encoding = encode(payload)
                key = key_of(payload) if key_of is not None else None
            except PayloadError as error:
                errors[at] = self._located(error)
            else:
                messages.append(
                    Outgoing(body, ids[at], exchange, name, now, kind, encoding, key, queue)
                )
        return messages, errors

    def through(self, exchange: Exchange, *, prepared: bool) -> Recipe:
        """The same by way of another exchange."""
        other = copy(self)
        other.exchange = exchange
        other.exchange_name = exchange.name
        other.prepared = prepared
        return other

    def _key_of(self, payload: object) -> str:
        """The key that the event's own function gives the payload."""
        assert self._key is not None
        try:
            key: object = self._key(payload)
        except Exception as error:
            raise self._bad_key(f"failed: {error}") from error
        if isinstance(key, str) and is_text(key, MAX_KEY):
            return key
        gave = shorten(repr(key), 40) if isinstance(key, str) else type(key).__name__
        raise self._bad_key(f"gave {gave}, not a str of at most {MAX_KEY:,} bytes")

    def _bad_key(self, what: str) -> PayloadError:
        return PayloadError(f"the key function of event {self.name!r} {what}", operation="publish")

    def _located(self, error: PayloadError) -> PayloadError:
        """The error, saying where it happened."""
        if error.operation is not None:
            return error
        where = f"event {self.name!r}: " if self.queue is None else ""
        located = PayloadError(where + error.message, operation="publish", queue=self.queue)
        located.__cause__ = error.__cause__
        return located


class Recipes(dict[object, Recipe]):
    """The recipe of each event and queue that was published to of late, made when first asked
    for."""

    def __init__(
        self, connection: Connection, codec: Codec, settings: Settings, clock: Clock
    ) -> None:
        super().__init__()
        self._connection = connection
        self._codec = codec
        self._default = settings.default_exchange
        self._now = clock.now

    def of(self, target: object) -> Recipe:
        """The recipe for an event, the name of one, or a queue."""
        try:
            return self[target]
        except TypeError:
            if isinstance(target, (Event, Queue, str)):
                raise
            raise _no_target(target) from None  # nor has it a hash

    def __missing__(self, target: object) -> Recipe:
        match target:
            case Event():
                name, kind, key, exchange = target.name, target.type, target.key, target.exchange
            case Queue():
                recipe = self._for_queue(target)
                return self._remember(target, recipe)
            case str():
                event: Event[Any] = Event(target)  # its checks on names apply
                name, kind, key, exchange = target, event.type, None, None
            case _:
                raise _no_target(target)
        check_name("event", name, self._connection.traits.max_name)
        resolved = self._resolved(exchange)
        recipe = Recipe(name, kind, self._codec, self._now, key=key, exchange=resolved)
        recipe.prepared = self._connection.prepared(resolved)
        return self._remember(target, recipe)

    def through(self, recipe: Recipe, given: Exchange | str | None) -> Recipe:
        """The recipe, by way of the exchange that the caller asks for, if any."""
        if given is None:
            return recipe
        exchange = self._resolved(given)
        return recipe.through(exchange, prepared=self._connection.prepared(exchange))

    def _for_queue(self, queue: Queue[Any]) -> Recipe:
        check_name("queue", queue.name, self._connection.traits.max_name)
        return Recipe(queue.name, queue.type or Any, self._codec, self._now, queue=queue.name)

    def _resolved(self, given: Exchange | str | None) -> Exchange:
        if isinstance(given, Exchange):
            exchange = given
        else:
            exchange = self._default if given is None else Exchange(given, self._default.type)
        traits = self._connection.traits
        if exchange.type not in traits.exchange_types:
            raise UnsupportedFeature(
                f"this broker has no {exchange.type} exchanges, as {exchange.name!r} is to be; "
                f"it has {', '.join(sorted(traits.exchange_types))}",
                broker=traits.name,
                operation="publish",
            )
        return exchange

    def _remember(self, target: object, recipe: Recipe) -> Recipe:
        if len(self) >= REMEMBERED:
            self.clear()
        self[target] = recipe
        return recipe


def _no_target(target: object) -> TypeError:
    kind = type(target).__name__
    return TypeError(f"publish takes an Event or the name of one, not {kind}")
