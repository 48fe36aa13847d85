"""What a run has found, as values that can be written, read again and made into a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from benchmarks.harness import Spread

SENT = "orders sent"
"""A column that counts."""


class Row(msgspec.Struct, kw_only=True):
    """One contender in one table; `figures` has one for each round."""

    contender: str
    case: str
    setting: str
    figures: list[float]
    more: dict[str, list[float]] = {}
    """Other columns."""
    weaker: str = ""
    against: str = ""
    """The case of ours that it is compared with; empty for ours."""
    differs: str = ""
    """What it does otherwise than ours that may put it ahead."""

    @property
    def spread(self) -> Spread:
        return Spread.of(self.figures)


class Section(msgspec.Struct, kw_only=True):
    """One table: a measurement on a broker."""

    broker: str
    name: str
    unit: str
    digits: int = 0
    better: Literal["more", "less"] = "more"
    throughput: bool = False
    rounds: int = 0
    note: str = ""
    least: float = 0.0
    """Figures below it are noise: a row that has one is shown, and has no ratio."""
    rows: list[Row] = []
    missing: dict[str, str] = {}
    """Who is not in it, and why."""

    def ours(self, row: Row) -> Row | None:
        """The row of ours to compare a row with."""
        mine = (each for each in self.rows if not each.against)
        return next((each for each in mine if row.against == each.case), None)

    def ratio(self, row: Row) -> Spread | None:
        """A row in ours, round by round: a slow moment of the machine hits both."""
        pairs = self._pairs(row)
        if any(min(pair) < self.least for pair in pairs):
            return None
        return _ratio(pairs)

    def ahead(self, row: Row) -> bool:
        """Whether a peer does better than ours; all that is noise counts as much."""
        least = self.least
        ratio = _ratio([(max(a, least), max(b, least)) for a, b in self._pairs(row)])
        if ratio is None:
            return False
        return ratio.median > 1 if self.better == "more" else ratio.median < 1

    def _pairs(self, row: Row) -> list[tuple[float, float]]:
        if not row.against or (ours := self.ours(row)) is None:
            return []
        return list(zip(row.figures, ours.figures, strict=False))


def _ratio(pairs: Sequence[tuple[float, float]]) -> Spread | None:
    # Memory may shrink: a ratio to or of that says nothing.
    ratios = [a / b for a, b in pairs if min(a, b) > 0]
    return Spread.of(ratios) if ratios else None


class Claim(msgspec.Struct, kw_only=True):
    """Something that is owed, and whether it holds in this run."""

    group: str
    sentence: str
    holds: bool | None


class Run(msgspec.Struct, kw_only=True):
    """All of it."""

    format: int = 2
    at: str
    command: str
    quick: bool
    seconds: float
    environment: dict[str, Any]
    sections: list[Section]
    claims: list[Claim] = []

    def renewed(self, later: Run) -> Run:
        """The same, with the tables and claims that were measured again; each says so."""
        told = ", ".join([later.at, *self._otherwise(later)])
        apart = f"Measured after the others, in a run of its own ({told}): `{later.command}`."
        new = {(each.broker, each.name): each for each in later.sections}
        sections: list[Section] = []
        for each in self.sections:
            found = new.pop((each.broker, each.name), None)
            if found is not None:
                each = msgspec.structs.replace(found, note=f"{found.note} {apart}".strip())
            sections.append(each)
        if new:
            names = ", ".join(f"{broker}: {name}" for broker, name in new)
            raise ValueError(f"there is nothing to renew of {names}")
        groups = {each.group for each in later.claims}
        kept = [each for each in self.claims if each.group not in groups]
        return msgspec.structs.replace(self, sections=sections, claims=[*kept, *later.claims])

    def _otherwise(self, later: Run) -> list[str]:
        """The commit of a later run, and the brokers that it had in another version."""
        commit, before = later.environment.get("commit"), self.environment.get("brokers", {})
        brokers = later.environment.get("brokers", {}).items()
        changed = [f"{name} {now}" for name, now in brokers if before.get(name) != now]
        return [*([f"commit {commit}"] if commit else []), *changed]

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")

    @classmethod
    def read(cls, path: Path) -> Run:
        return msgspec.json.decode(path.read_bytes(), type=cls)
