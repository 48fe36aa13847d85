"""Which hours of a lake have changed and are to be worked on again.

Each batch that goes into bronze notes the hours of birth in it and, for each, the hours in which
its rows happened. The note is on the disk before Spark takes the batch for done, and is kept until
all tables are up to date. What is known of all hours is kept beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path
from typing import TypeAlias

import msgspec

from queuecraft.pipeline.jobs.swap import write
from queuecraft.pipeline.lake import Lake

Hour: TypeAlias = str
"""As `2026-11-15T09`, in UTC."""


class Known(msgspec.Struct):
    """Of the messages born in one hour: how many rows there are, and when they happened."""

    rows: int = 0
    at: set[Hour] = msgspec.field(default_factory=set)

    def add(self, other: Known) -> None:
        """Take in what another batch has brought."""
        self.rows += other.rows
        self.at |= other.at


class _Kept(msgspec.Struct):
    batch: int = -1  # the last one that all tables have
    stale: bool = False  # something was removed, and the tables made of all hours do not know yet
    horizon: Hour = ""  # what was counted before that has expired
    hours: dict[Hour, Known] = msgspec.field(default_factory=dict)


class Hours:
    """The hours of a lake, and those that wait to be worked on."""

    def __init__(self, lake: Lake) -> None:
        self._folder = lake.checkpoints / "ingest"
        self._kept = _Kept()
        self.touched: dict[Hour, Known] = {}
        self.load()

    def load(self) -> None:
        """Look what is on the disk."""
        kept = self._folder / "hours.json"
        self._kept = (
            msgspec.json.decode(kept.read_bytes(), type=_Kept) if kept.exists() else _Kept()
        )
        self.touched = {}
        for batch, note in self._notes():
            if batch > self._kept.batch:
                new = msgspec.json.decode(note.read_bytes(), type=dict[Hour, Known])
                for hour, known in new.items():
                    self.touched.setdefault(hour, Known()).add(known)

    def note(self, batch: int, hours: Mapping[Hour, Known]) -> None:
        """Write down what a batch has touched, instead of what it may have noted before."""
        write(
            self._folder / "touched" / f"{batch}.json", msgspec.json.encode(hours, order="sorted")
        )

    @property
    def waiting(self) -> int:
        """How many new rows wait to be worked on."""
        return sum(known.rows for known in self.touched.values())

    @property
    def stale(self) -> bool:
        """Whether the tables made of all hours have to be made anew."""
        return bool(self.touched) or self._kept.stale

    @property
    def shrunk(self) -> bool:
        """Whether hours were removed that the tables made of all hours still know of."""
        return self._kept.stale

    @property
    def horizon(self) -> Hour:
        """The first hour that is still counted; empty if none has expired."""
        return self._kept.horizon

    def all(self) -> dict[Hour, Known]:
        """Everything that is known, also what is not worked on yet."""
        known = {hour: Known(each.rows, set(each.at)) for hour, each in self._kept.hours.items()}
        for hour, new in self.touched.items():
            known.setdefault(hour, Known()).add(new)
        return known

    def done(self) -> None:
        """Everything that was touched is worked on."""
        notes = list(self._notes())
        batch = max([self._kept.batch, *(batch for batch, _ in notes)])
        self._keep(_Kept(batch, False, self._kept.horizon, self.all()))
        for _, note in notes:
            note.unlink(missing_ok=True)
        self.touched = {}

    def forget(self, hours: Set[Hour], horizon: Hour) -> None:
        """These are going to be removed, and counts of the time before the horizon."""
        kept = {hour: known for hour, known in self._kept.hours.items() if hour not in hours}
        self._keep(_Kept(self._kept.batch, True, max(horizon, self._kept.horizon), kept))

    def _keep(self, kept: _Kept) -> None:
        write(self._folder / "hours.json", msgspec.json.encode(kept, order="sorted"))
        self._kept = kept

    def _notes(self) -> Iterator[tuple[int, Path]]:
        for note in sorted((self._folder / "touched").glob("[0-9]*.json")):
            yield int(note.stem), note


def folder_of(hour: Hour) -> str:
    """Where an hour is in a table.

    >>> folder_of("2026-11-15T09")
    'date=2026-11-15/hour=9'
    """
    return f"date={hour[:10]}/hour={int(hour[11:])}"


def hour_in(date: str, hour: str | int) -> Hour:
    """The hour of a folder's names.

    >>> hour_in("2026-11-15", "9")
    '2026-11-15T09'
    """
    return f"{date}T{int(hour):02}"


def in_groups(
    hours: Iterable[Hour], known: Mapping[Hour, Known], most: int
) -> Iterator[list[Hour]]:
    """Hours in order, as many together as have about so many rows.

    >>> list(in_groups(["c", "a", "b"], {"a": Known(5), "b": Known(4), "c": Known(9)}, 10))
    [['a', 'b'], ['c']]
    """
    group: list[Hour] = []
    rows = 0
    for hour in sorted(hours):
        more = known[hour].rows if hour in known else 0
        if group and rows + more > most:
            yield group
            group, rows = [], 0
        group.append(hour)
        rows += more
    if group:
        yield group
