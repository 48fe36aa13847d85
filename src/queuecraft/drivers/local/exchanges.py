"""Exchanges and bindings in memory, with the routes they make remembered."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeAlias, TypeVar

from queuecraft.drivers.base import Binding, Exchange, Outgoing
from queuecraft.model.errors import TopologyMismatch
from queuecraft.model.routing import headers_match, is_wild, topic_matches

Inbox = TypeVar("Inbox", bound=Hashable)
"""What stands for a queue."""

Bound: TypeAlias = tuple[Binding, Inbox]

REMEMBERED = 4096  # routes kept; routing keys may be made of user data, so there is a bound


class Bindings(Generic[Inbox]):
    """All of one exchange, by their patterns: of thousands, nearly all name a routing key, and are
    looked up by it. Only the others are tried."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self._by_pattern: dict[str, dict[Bound[Inbox], None]] = {}
        self._wild: dict[str, None] = {}

    def __iter__(self) -> Iterator[Bound[Inbox]]:
        for some in self._by_pattern.values():
            yield from some

    def add(self, binding: Binding, inbox: Inbox) -> bool:
        """Have a binding; whether it is new."""
        some = self._by_pattern.setdefault(binding.pattern, {})
        if (binding, inbox) in some:
            return False
        some[binding, inbox] = None
        if is_wild(binding.pattern):
            self._wild[binding.pattern] = None
        return True

    def remove(self, binding: Binding, inbox: Inbox) -> None:
        """Have it no more."""
        some = self._by_pattern[binding.pattern]
        del some[binding, inbox]
        if not some:
            del self._by_pattern[binding.pattern]
            self._wild.pop(binding.pattern, None)

    def of(self, pattern: str) -> Iterator[Bound[Inbox]]:
        """Those with this very pattern."""
        yield from self._by_pattern.get(pattern, ())

    def matching(self, message: Outgoing) -> Iterator[Bound[Inbox]]:
        """Those that want a message; one with the same inbox may come twice."""
        match self.exchange.type:
            case "fanout":
                yield from self
            case "headers":
                yield from (
                    each for each in self if headers_match(each[0].headers, message.headers)
                )
            case "direct":
                yield from self.of(message.routing_key)
            case "topic":
                yield from self.of(message.routing_key)
                for pattern in self._wild:
                    if topic_matches(pattern, message.routing_key):
                        yield from self.of(pattern)


class Exchanges(Generic[Inbox]):
    """Who gets what."""

    def __init__(self) -> None:
        self._known: dict[str, Bindings[Inbox]] = {}
        self._routes: dict[tuple[str, str], tuple[Inbox, ...]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def __getitem__(self, name: str) -> Exchange:
        return self._known[name].exchange

    @property
    def all(self) -> tuple[Exchange, ...]:
        """Every exchange."""
        return tuple(each.exchange for each in self._known.values())

    @property
    def bindings(self) -> Iterator[Bound[Inbox]]:
        """Every binding, with whom it gives messages to."""
        for each in self._known.values():
            yield from each

    def declare(self, exchange: Exchange) -> None:
        """Add an exchange, or find it as it is asked for."""
        existing = self._known.setdefault(exchange.name, Bindings(exchange)).exchange
        for name in ("type", "durable", "auto_delete", "arguments"):
            have, want = getattr(existing, name), getattr(exchange, name)
            if have != want:
                raise TopologyMismatch(
                    f"exchange {exchange.name!r} exists with {name}={have!r}, {want!r} is asked "
                    "for; use another name or ask for the same",
                    broker="local",
                    operation="declare",
                )

    def bind(self, binding: Binding, inbox: Inbox) -> None:
        """Give the inbox what the binding matches, from now on."""
        self.declare(binding.exchange)
        if self._known[binding.exchange.name].add(binding, inbox):
            self._routes.clear()

    def unbind(self, binding: Binding, inbox: Inbox) -> None:
        """Give the inbox no more what the binding matches, whatever type of exchange it names."""
        bound = self._known.get(binding.exchange.name)
        if bound is None:
            return
        for known, taker in list(bound.of(binding.pattern)):
            if taker is inbox and known.headers == binding.headers:
                bound.remove(known, taker)
                self._routes.clear()

    def forget(self, inbox: Inbox) -> None:
        """Remove every binding of an inbox."""
        for bound in self._known.values():
            for binding, taker in list(bound):
                if taker is inbox:
                    bound.remove(binding, taker)
        self._routes.clear()

    def by_key(self, name: str) -> bool:
        """Whether the routing key alone decides the route."""
        return name in self and self[name].type != "headers"

    def route(self, message: Outgoing) -> tuple[Inbox, ...]:
        """The inboxes a message goes to, each once."""
        route = (message.exchange, message.routing_key)
        inboxes = self._routes.get(route)
        if inboxes is not None:
            return inboxes
        bound = self._known.get(message.exchange)
        if bound is None:
            return ()
        inboxes = tuple(dict.fromkeys(inbox for _, inbox in bound.matching(message)))
        if bound.exchange.type != "headers":  # those routes depend on more than the key
            if len(self._routes) >= REMEMBERED:
                self._routes.clear()
            self._routes[route] = inboxes
        return inboxes
