"""Which handler takes which message: the most specific pattern wins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from queuecraft.model.errors import ConfigError
from queuecraft.model.routing import overlap, specificity, topic_matches

H = TypeVar("H")

REMEMBERED = 1024  # routing keys come from messages, so what is remembered is bounded


class Router(Generic[H]):
    """Patterns and what they lead to. `known` is what was found before, for a short cut; it stays
    empty with `remember=False`.

    >>> router = Router([("order.*", "any order"), ("order.placed", "placed")])
    >>> router.find("order.placed"), router.find("order.paid"), router.find("user.created")
    ('placed', 'any order', None)
    """

    def __init__(self, routes: Iterable[tuple[str, H]], *, remember: bool = True) -> None:
        ranked = sorted(routes, key=lambda route: specificity(route[0]), reverse=True)
        check_ties([pattern for pattern, _ in ranked])
        self._ranked = ranked
        self.only = ranked[0][1] if len(ranked) == 1 else None
        self.known: dict[str, H] = {}
        self._remember = remember

    def find(self, routing_key: str) -> H | None:
        """What the most specific matching pattern leads to."""
        found = self.known.get(routing_key)
        if found is None:
            for pattern, target in self._ranked:
                if topic_matches(pattern, routing_key):
                    found = target
                    if self._remember:
                        if len(self.known) >= REMEMBERED:
                            self.known.clear()
                        self.known[routing_key] = target
                    break
        return found


def check_ties(patterns: Sequence[str]) -> None:
    """Raise `ConfigError` if two patterns would compete for the same message.

    >>> check_ties(["order.*", "*.placed"])
    Traceback (most recent call last):
    queuecraft.ConfigError: patterns 'order.*' and '*.placed' are equally specific ...
    """
    for at, one in enumerate(patterns):
        for other in patterns[at + 1 :]:
            if one == other:
                raise ConfigError(f"two handlers for {one!r} on one worker; use two workers")
            if specificity(one) == specificity(other) and overlap(one, other):
                raise ConfigError(
                    f"patterns {one!r} and {other!r} are equally specific and match the same "
                    "events; make one more specific"
                )
