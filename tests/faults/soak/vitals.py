"""What a process uses, looked at again and again, and whether that grows."""

from __future__ import annotations

import os
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

MEMORY: Final = 4.0  # MiB by which a process may grow from the middle third to the last
DESCRIPTORS: Final = 4
THREADS: Final = 2
FEWEST: Final = 9  # samples that say anything

_PRIVATE: Final = re.compile(r"^Private_\w+:\s+(\d+) kB$", re.MULTILINE)


class Vitals(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a process."""

    memory: float
    """MiB that are its own: it shares the rest with the process it was forked from."""
    descriptors: int
    threads: int

    @classmethod
    def of(cls, pid: int) -> Vitals:
        """How it is now."""
        home = Path("/proc") / str(pid)
        private = _PRIVATE.findall((home / "smaps_rollup").read_text(encoding="ascii"))
        return cls(
            memory=sum(map(int, private)) / 1024,
            descriptors=len(os.listdir(home / "fd")),
            threads=len(os.listdir(home / "task")),
        )


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """A process in the middle third of its time, and in the last; the first is for warming up."""

    name: str
    before: Vitals
    after: Vitals

    @classmethod
    def of(cls, name: str, looks: Sequence[Vitals]) -> Growth:
        """By what is usual, so that no moment counts in which it was just reconnecting."""
        assert len(looks) >= FEWEST, f"{len(looks)} looks at {name} are too few"
        third = len(looks) // 3
        return cls(name=name, before=_usual(looks[third:-third]), after=_usual(looks[-third:]))

    @property
    def complaints(self) -> list[str]:
        """What has grown by more than it may."""
        found: list[str] = []
        if self.after.memory > self.before.memory + MEMORY:
            found.append(f"memory {self.before.memory:.1f} → {self.after.memory:.1f} MiB")
        if self.after.descriptors > self.before.descriptors + DESCRIPTORS:
            found.append(f"descriptors {self.before.descriptors} → {self.after.descriptors}")
        if self.after.threads > self.before.threads + THREADS:
            found.append(f"threads {self.before.threads} → {self.after.threads}")
        return [f"{self.name}: {each}" for each in found]


def _usual(looks: Sequence[Vitals]) -> Vitals:
    return Vitals(
        memory=statistics.median(each.memory for each in looks),
        descriptors=_at_full_strength([each.descriptors for each in looks]),
        threads=_at_full_strength([each.threads for each in looks]),
    )


def _at_full_strength(counts: Sequence[int]) -> int:
    """The ninth decile: some clients are made only when they are needed, so a process that has to
    reconnect again and again is for about half of the time without one of them. The median would
    be with it in one third and without it in the other."""
    return sorted(counts)[9 * len(counts) // 10]
