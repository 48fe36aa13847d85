"""How a cell ended: what was counted, and whether that is what was promised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from tests.faults.matrix.tally import Tally

Verdict = Literal["held", "broken", "failed", "not applicable"]

SHOWN = 5


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One cell. `failed` is the reason why it did not come to its end, `excused` why it was not
    run; without either there is a tally."""

    broker: str
    fault: str
    tally: Tally | None = None
    left: Sequence[str] = ()
    """What the queues still held at the end."""
    failed: str = ""
    excused: str = ""
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        if self.excused:
            return "not applicable"
        if self.failed or self.tally is None:
            return "failed"
        return "broken" if self.complaints else "held"

    @property
    def complaints(self) -> list[str]:
        """What is not as promised, in words; none if all is well or nothing was to be run."""
        if self.excused:
            return []
        if self.failed or self.tally is None:
            return [f"did not come to its end: {self.failed or 'nothing was counted'}"]
        found: list[str] = []
        if self.tally.lost:
            found.append(f"LOST {len(self.tally.lost)} messages: {some(self.tally.lost)}")
        if self.left:
            found.append(f"queues did not end empty: {some(self.left)}")
        if self.tally.unexplained:
            found.append(f"dead letters nobody asked for: {some(self.tally.unexplained)}")
        if self.tally.out_of_nowhere:
            found.append(f"handled, and never published: {some(self.tally.out_of_nowhere)}")
        if self.tally.acknowledged == 0:
            found.append("nothing was published, so nothing is proven")
        return found


def some(items: Sequence[str]) -> str:
    """The first of them, and how many more there are.

    >>> some(["a", "b"]), some(list("abcdefg"))
    ('a, b', 'a, b, c, d, e and 2 more')
    """
    more = f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return ", ".join(items[:SHOWN]) + more
