"""Other sessions that seem to be dead, and since when they seem so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from queuecraft.clock import Clock
from queuecraft.drivers.local.sqlite import pulse
from queuecraft.drivers.local.sqlite.bell import Bell

BEATS: Final = 2  # of the heart, for which one that seems to be dead has time to show it is not


class Suspects:
    """A session whose bell nobody listens to is dead. One whose lease has run out may be alive:
    when the clock is set, or the machine has slept, all leases run out at once, and no heart has
    had the time to beat since. It is dead if it stays silent."""

    def __init__(self, clock: Clock, bell: Bell) -> None:
        self._clock = clock
        self._bell = bell
        self._since: dict[tuple[str, float], float] = {}  # by name and end of the lease

    def missing(self, sessions: Mapping[str, float], own: str) -> set[str]:
        """Those of the other sessions that are dead, of all with the ends of their leases."""
        now, moment = self._clock.now(), self._clock.monotonic()
        late = [each for each in sessions.items() if each[1] < now]
        self._since = {each: self._since.get(each, moment) for each in late}
        patience = BEATS * pulse.BEAT
        silent = {name for (name, _), since in self._since.items() if moment - since > patience}
        return {
            name
            for name in sessions
            if name != own and (name in silent or not self._bell.ring(name))
        }
