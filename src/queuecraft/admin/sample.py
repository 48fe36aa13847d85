"""What a broker said at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from queuecraft.drivers.base import QueueInfo
from queuecraft.model.presence import Presence


@dataclass(frozen=True, slots=True)
class Heard:
    """The last sign of life of a process: its own time of it, and ours when it came."""

    at: float
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The answer of a broker to one question about everything."""

    at: float
    """Seconds since 1970."""
    time: float
    """Seconds of a clock that never goes backwards."""
    queues: Mapping[str, QueueInfo] = field(default_factory=dict)
    presences: tuple[Presence, ...] | None = None
    heard: Mapping[str, Heard] = field(default_factory=dict)
    """When each process was last heard of, by its id."""
    pauses: Mapping[str, str] = field(default_factory=dict)
    """The queues that somebody has paused, and why."""
    lacking: str | None = None
    """Why there may be queues that the broker does not tell of."""
    took: float = 0.0

    def silent(self, presence: Presence) -> bool:
        """Whether a process has missed two signs of life.

        >>> ill = Presence(id="a", host="web-1", pid=7, started_at=0, at=5, state="connected")
        >>> for time in (10.0, 20.0):
        ...     Sample(at=0, time=time, heard={"a": Heard(5, 5.0)}).silent(ill)
        False
        True
        """
        known = self.heard.get(presence.id)
        return known is not None and self.time - known.time > 2 * presence.every + 0.5


def heard(
    before: Mapping[str, Heard], presences: Iterable[Presence], *, at: float, time: float
) -> dict[str, Heard]:
    """When each process was last heard of. Its clock need not go like ours: what counts is when
    it is seen to have said something new.

    >>> here = Presence(id="a", host="web-1", pid=7, started_at=0, at=500, state="connected")
    >>> first = heard({}, [here], at=508, time=100.0)
    >>> first["a"].time
    92.0
    >>> heard(first, [here], at=509, time=101.0) == first
    True
    """
    known: dict[str, Heard] = {}
    for each in presences:
        last = before.get(each.id)
        if last is None:
            age = at - each.at  # longer than its note is up, it cannot be
            known[each.id] = Heard(each.at, time - age if 0 < age <= 3 * each.every + 1 else time)
        else:
            known[each.id] = last if last.at == each.at else Heard(each.at, time)
    return known
