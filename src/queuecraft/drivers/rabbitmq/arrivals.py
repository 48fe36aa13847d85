"""Which queues an exchange gives a dead letter to."""

from __future__ import annotations

from collections.abc import Iterable

from queuecraft.drivers.rabbitmq.management import BindingState
from queuecraft.model.routing import topic_matches


class Arrivals:
    """The bindings of one exchange, by their keys: with very many queues, each has its own.

    >>> ward = BindingState("ward", "billing.dlq", "queue", "billing.dlq")
    >>> every = BindingState("ward", "morgue", "queue", "#")
    >>> Arrivals("topic", [ward, every]).of("billing.dlq")
    ['billing.dlq', 'morgue']
    >>> Arrivals("headers", [every]).of("billing.dlq")
    []
    """

    def __init__(self, kind: str, bindings: Iterable[BindingState]) -> None:
        self._kind = kind
        self._exact: dict[str, list[str]] = {}
        self._patterns: list[tuple[str, str]] = []
        for each in bindings:
            if each.destination_type == "queue":
                if kind == "topic" and ("*" in each.routing_key or "#" in each.routing_key):
                    self._patterns.append((each.routing_key, each.destination))
                else:
                    self._exact.setdefault(each.routing_key, []).append(each.destination)

    def meant_for(self, routing_key: str | None) -> list[str]:
        """The same, but where some are bound by this very key, what a pattern gives to others are
        copies.

        >>> ward = BindingState("ward", "billing.dlq", "queue", "billing.dlq")
        >>> every = BindingState("ward", "tap", "queue", "#")
        >>> Arrivals("topic", [ward, every]).meant_for("billing.dlq")
        ['billing.dlq']
        >>> Arrivals("topic", [every]).meant_for("billing.dlq")
        ['tap']
        """
        if self._kind == "topic" and routing_key in self._exact:
            return list(self._exact[routing_key])
        return self.of(routing_key)

    def of(self, routing_key: str | None) -> list[str]:
        """The queues that get what dies with this key; None: with the key it came with. Where it
        depends on the message, none is certain."""
        if self._kind == "fanout":
            reached = [each for some in self._exact.values() for each in some]
        elif routing_key is None or self._kind not in ("topic", "direct"):
            return []
        else:
            wide = [to for pattern, to in self._patterns if topic_matches(pattern, routing_key)]
            reached = [*self._exact.get(routing_key, ()), *wide]
        return list(dict.fromkeys(reached))
