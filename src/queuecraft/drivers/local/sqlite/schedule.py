"""When the next delayed message is due, and a timer for it."""

from __future__ import annotations

from collections.abc import Callable

from queuecraft.clock import Clock, Timer
from queuecraft.drivers.local.sqlite.storage import NEVER


class Schedule:
    """Calls back when something is due; but only if somebody here would receive it."""

    def __init__(self, clock: Clock, on_due: Callable[[], None]) -> None:
        self.due = NEVER
        self._clock = clock
        self._on_due = on_due
        self._timer: Timer | None = None

    def set(self, due: float, *, wanted: bool) -> None:
        """The next message is due then."""
        if due == self.due and self._timer is not None:
            return
        self.cancel()
        self.due = due
        if wanted and due < NEVER:
            self._timer = self._clock.call_later(due - self._clock.now(), self._fire)

    def cancel(self) -> None:
        """Call back no more."""
        self.due = NEVER
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        self._on_due()
