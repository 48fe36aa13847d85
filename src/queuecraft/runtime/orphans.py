"""What was handled while its connection was lost: not to be run a second time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeAlias

REMEMBERED = 10_000

Tell: TypeAlias = Callable[[bool], object]
"""Called when a run has ended, with whether it succeeded."""


class Orphans:
    """Messages handled here, or still running here, that the broker will deliver again.

    A message without an id cannot be told from others, so it is not remembered.

    >>> orphans = Orphans()
    >>> orphans.started("m-1")
    >>> orphans.wait("m-1", lambda success: print("handled" if success else "failed"))
    True
    >>> orphans.finished("m-1")
    handled
    >>> orphans.adopt("m-1"), orphans.adopt("m-1")
    (True, False)
    """

    def __init__(self) -> None:
        self._running: dict[str, list[Tell]] = {}
        self._finished: OrderedDict[str, None] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._running or self._finished)

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._running or message_id in self._finished

    def started(self, message_id: str) -> None:
        """The connection broke while this message is being handled."""
        if message_id:
            self._running.setdefault(message_id, [])

    def finished(self, message_id: str, *, success: bool = True) -> None:
        """The run has ended; only a success counts."""
        waiting = self._running.pop(message_id, ())
        if success and message_id:
            self._finished[message_id] = None
            if len(self._finished) > REMEMBERED:
                self._finished.popitem(last=False)
        for tell in waiting:
            tell(success)

    def wait(self, message_id: str, tell: Tell) -> bool:
        """Whether a run of this message goes on; if so, `tell` is called at its end."""
        waiting = self._running.get(message_id)
        if waiting is None:
            return False
        waiting.append(tell)
        return True

    def adopt(self, message_id: str) -> bool:
        """Whether a message that came again was handled already; each run counts once."""
        return self._finished.pop(message_id, self) is None
