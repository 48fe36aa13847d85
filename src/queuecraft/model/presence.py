"""What a process tells of itself every few seconds, so that others see it alive."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final

import msgspec

BOUNDS: Final = tuple(0.0005 * 2**power for power in range(20))
"""The upper bounds, in seconds, of the steps in which durations are counted; one more is open."""


class WorkerPresence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One worker of a process: what it has done since it started, and how long that took."""

    queue: str
    concurrency: int = 1
    in_flight: int = 0
    paused: str | None = None
    received: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    postponed: int = 0
    dead_lettered: int = 0
    expired: int = 0
    dropped: int = 0
    durations: tuple[int, ...] = ()  # a sample of them, counted by the steps of `BOUNDS`

    @property
    def settled(self) -> int:
        """How many have left the queue for good."""
        return self.succeeded + self.dead_lettered + self.expired + self.dropped


class Presence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A process with workers, as of `at` (seconds since 1970).

    >>> here = Presence(id="a1", host="web-1", pid=7, started_at=1.0, at=2.0, state="connected")
    >>> Presence.read(here.written()) == here
    True
    """

    id: str
    host: str
    pid: int
    started_at: float
    at: float
    state: str
    version: str = ""
    every: float = 5.0  # seconds from one sign of life to the next
    sent: int = 0
    blocked: str | None = None
    last_error: str | None = None
    workers: tuple[WorkerPresence, ...] = ()
    circuits: Mapping[str, str] = {}

    def written(self) -> bytes:
        """The note that is put up."""
        return _encoder.encode(self)

    @classmethod
    def read(cls, note: bytes) -> Presence | None:
        """What a note says; None for one that cannot be read, as from another version."""
        try:
            return _decoder.decode(note)
        except (msgspec.MsgspecError, ValueError, RecursionError):  # text that is none, too
            return None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Presence)


def step_of(seconds: float) -> int:
    """Which step a duration is counted in.

    >>> step_of(0.0), step_of(0.0006), step_of(1e9) == len(BOUNDS)
    (0, 1, True)
    """
    return bisect_left(BOUNDS, seconds)


def quantile(counts: Sequence[int], share: float) -> float | None:
    """The duration that so large a share of the counted ones does not pass, by the bound of its
    step; None if nothing was counted, infinite beyond the last bound.

    >>> quantile([0, 95, 0, 5], 0.95), quantile([], 0.5)
    (0.001, None)
    """
    total = sum(counts)
    if not total:
        return None
    step = bisect_left(tuple(accumulate(counts)), share * total)
    return BOUNDS[step] if step < len(BOUNDS) else float("inf")


def added(counts: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Counts of several, step by step.

    >>> added([(1, 2), (0, 1, 4)])
    (1, 3, 4)
    """
    sums: list[int] = []
    for each in counts:
        sums += [0] * (len(each) - len(sums))
        for step, count in enumerate(each):
            sums[step] += count
    return tuple(sums)
