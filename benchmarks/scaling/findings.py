"""What a run of scaling has found, as values that can be written and read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from benchmarks.harness import Spread


class Point(msgspec.Struct, kw_only=True):
    """One place on an axis; a figure for each round."""

    x: int
    figures: dict[str, list[float]] = {}
    missing: str = ""
    """Why there are none."""

    def spread(self, line: str) -> Spread | None:
        return Spread.of(self.figures[line]) if self.figures.get(line) else None


class Curve(msgspec.Struct, kw_only=True):
    """An axis on a broker."""

    axis: str
    broker: str
    points: list[Point] = []
    missing: str = ""

    def line(self, name: str) -> list[tuple[float, float]]:
        """What can be drawn."""
        placed = ((point.x, point.spread(name)) for point in self.points)
        return [(float(x), found.median) for x, found in placed if found is not None]


class Findings(msgspec.Struct, kw_only=True):
    """All of it."""

    format: int = 1
    at: str
    command: str
    quick: bool
    seconds: float
    environment: dict[str, Any]
    curves: list[Curve]

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")

    @classmethod
    def read(cls, path: Path) -> Findings:
        return msgspec.json.decode(path.read_bytes(), type=cls)
