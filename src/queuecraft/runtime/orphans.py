"""What was handled while its connection was lost: not to be run a second time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeAlias

from queuecraft.clock import Clock
from queuecraft.model.envelope import Delivery
from queuecraft.runtime.sameness import name_of

REMEMBERED = 10_000
FOR = 600.0  # seconds: what comes again does so soon, if it comes here at all

Tell: TypeAlias = Callable[[bool], object]
"""Called when a run has ended, with whether it succeeded."""


class Orphans:
    """Messages handled here, or still running here, that the broker will deliver again.

    A message without an id cannot be told from others, so it is not remembered.

    >>> from queuecraft.model.envelope import Outgoing
    >>> first, again = (Delivery(Outgoing(b"", "m-1"), "billing") for _ in range(2))
    >>> orphans = Orphans(Clock())
    >>> orphans.started(first)
    >>> orphans.wait(again, lambda success: print("handled" if success else "failed"))
    True
    >>> orphans.finished(first)
    handled
    >>> orphans.adopt(again), orphans.adopt(again)
    (True, False)
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: dict[str, list[Tell]] = {}
        self._finished: OrderedDict[str, float] = OrderedDict()  # and when, the first to end first

    def __bool__(self) -> bool:
        while self._finished:
            name, ended = next(iter(self._finished.items()))
            if ended > self._clock.monotonic() - FOR:
                break
            del self._finished[name]
        return bool(self._running or self._finished)

    def __contains__(self, delivery: Delivery) -> bool:
        name = name_of(delivery)
        return name in self._running or name in self._finished

    def started(self, delivery: Delivery) -> None:
        """The connection broke while this message is being handled."""
        if name := name_of(delivery):
            self._running.setdefault(name, [])

    def finished(self, delivery: Delivery, *, success: bool = True) -> None:
        """The run has ended; only a success counts."""
        name = name_of(delivery)
        waiting = self._running.pop(name, ())
        if success and name:
            self._finished[name] = self._clock.monotonic()
            self._finished.move_to_end(name)
            if len(self._finished) > REMEMBERED:
                self._finished.popitem(last=False)
        for tell in waiting:
            tell(success)

    def wait(self, delivery: Delivery, tell: Tell) -> bool:
        """Whether a run of this message goes on; if so, `tell` is called at its end."""
        waiting = self._running.get(name_of(delivery))
        if waiting is None:
            return False
        waiting.append(tell)
        return True

    def adopt(self, delivery: Delivery) -> bool:
        """Whether a message that came again was handled already; each run counts once."""
        return self._finished.pop(name_of(delivery), None) is not None
