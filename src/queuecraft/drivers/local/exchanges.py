"""Exchanges and bindings in memory, with the routes they make remembered."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from queuecraft.drivers.base import Binding, Exchange, Outgoing
from queuecraft.model.errors import TopologyMismatch
from queuecraft.model.routing import matches

Inbox = TypeVar("Inbox", bound=Hashable)
"""What stands for a queue."""

REMEMBERED = 4096  # routes kept; routing keys may be made of user data, so there is a bound


class Exchanges(Generic[Inbox]):
    """Who gets what."""

    def __init__(self) -> None:
        self.known: dict[str, Exchange] = {}
        self.bindings: dict[str, list[tuple[Binding, Inbox]]] = {}
        self._routes: dict[tuple[str, str], tuple[Inbox, ...]] = {}

    def declare(self, exchange: Exchange) -> None:
        """Add an exchange, or find it as it is asked for."""
        existing = self.known.setdefault(exchange.name, exchange)
        for name in ("type", "durable", "auto_delete", "arguments"):
            have, want = getattr(existing, name), getattr(exchange, name)
            if have != want:
                raise TopologyMismatch(
                    f"exchange {exchange.name!r} exists with {name}={have!r}, {want!r} is asked "
                    "for; use another name or ask for the same",
                    broker="local",
                    operation="declare",
                )
        self.bindings.setdefault(exchange.name, [])

    def bind(self, binding: Binding, inbox: Inbox) -> None:
        """Give the inbox what the binding matches, from now on."""
        self.declare(binding.exchange)
        bound = self.bindings[binding.exchange.name]
        if (binding, inbox) not in bound:
            bound.append((binding, inbox))
            self._routes.clear()

    def unbind(self, binding: Binding, inbox: Inbox) -> None:
        """Give the inbox no more what the binding matches, whatever type of exchange it names."""
        bound = self.bindings.get(binding.exchange.name, [])
        for each in bound:
            known, taker = each
            if taker is inbox and (known.pattern, known.headers) == (
                binding.pattern,
                binding.headers,
            ):
                bound.remove(each)
                self._routes.clear()
                return

    def forget(self, inbox: Inbox) -> None:
        """Remove every binding of an inbox."""
        for name, bound in self.bindings.items():
            self.bindings[name] = [each for each in bound if each[1] is not inbox]
        self._routes.clear()

    def by_key(self, name: str) -> bool:
        """Whether the routing key alone decides the route."""
        exchange = self.known.get(name)
        return exchange is not None and exchange.type != "headers"

    def route(self, message: Outgoing) -> tuple[Inbox, ...]:
        """The inboxes a message goes to, each once."""
        route = (message.exchange, message.routing_key)
        inboxes = self._routes.get(route)
        if inboxes is not None:
            return inboxes
        exchange = self.known.get(message.exchange)
        if exchange is None:
            return ()
        inboxes = tuple(
            dict.fromkeys(
                inbox
                for binding, inbox in self.bindings[exchange.name]
                if matches(
                    exchange.type,
                    binding.pattern,
                    binding.headers,
                    message.routing_key,
                    message.headers,
                )
            )
        )
        if exchange.type != "headers":  # those routes depend on more than the key
            if len(self._routes) >= REMEMBERED:
                self._routes.clear()
            self._routes[route] = inboxes
        return inboxes
