"""The observers that an application has added itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from queuecraft.runtime.facts import Fact, Facts

F = TypeVar("F", bound=Fact)


class Listeners:
    """Remembered, so that they hear of a rehearsal too.

    >>> facts, heard = Facts(), []
    >>> stop = Listeners().add(facts, Fact, heard.append)
    >>> stop()
    """

    def __init__(self) -> None:
        self._known: dict[object, tuple[type[Any], Callable[[Any], object]]] = {}

    def add(
        self, facts: Facts, kind: type[F], observer: Callable[[F], object]
    ) -> Callable[[], None]:
        """Call `observer` with each fact of this kind; returns a function that stops it."""
        stop = facts.observe(kind, observer)
        self._known[stop] = (kind, observer)

        def forget() -> None:
            self._known.pop(stop, None)
            stop()

        return forget

    def stand_in(self, facts: Facts) -> Callable[[], None]:
        """Let all hear these facts as well, until the function that is returned is called. One
        that is stopped meanwhile is stopped for good; one that is added is gone then."""
        before = dict(self._known)
        for stop, (kind, observer) in before.items():
            facts.observe(kind, self._while_known(stop, observer))

        def go_back() -> None:
            for stop in self._known.keys() - before.keys():
                del self._known[stop]

        return go_back

    def _while_known(
        self, stop: object, observer: Callable[[Any], object]
    ) -> Callable[[Any], object]:
        return lambda fact: observer(fact) if stop in self._known else None
