"""Notes that are up, each until its time is over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

MOST: Final = 10_000  # notes that are kept: anybody may put them up, and memory has an end


class Notes:
    """What was put up, by name.

    >>> now = 0.0
    >>> notes = Notes(lambda: now)
    >>> notes.put("a1", b"here", until=15.0)
    >>> notes.up()
    {'a1': b'here'}
    >>> now = 15.0
    >>> notes.up()
    {}
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._notes: dict[str, tuple[bytes, float]] = {}

    def put(self, name: str, note: bytes, *, until: float) -> None:
        """Put a note up in place of an older one; an empty one takes it down."""
        self._notes.pop(name, None)
        if note:
            self._notes[name] = note, until
            while len(self._notes) > MOST:
                del self._notes[next(iter(self._notes))]

    def up(self) -> dict[str, bytes]:
        """Those whose time is not over."""
        now = self._now()
        self._notes = {name: each for name, each in self._notes.items() if each[1] > now}
        return {name: note for name, (note, _) in self._notes.items()}
