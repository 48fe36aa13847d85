"""Tables of the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from queuecraft.pipeline.report.axis import clock
from queuecraft.pipeline.report.markup import Markup, element
from queuecraft.pipeline.report.units import NOTHING, percent, seconds

LONGEST = 200  # characters of a name


@dataclass(frozen=True, slots=True)
class Cell:
    """What is in a cell, and how it is shown."""

    inside: str
    kind: str | None = None


Row: TypeAlias = Sequence[Cell]


def text(value: str | None) -> Cell:
    """A name, cut if it is very long; a dash where there is none."""
    if value is None:
        return Cell(NOTHING, "zero")
    return Cell(value if len(value) <= LONGEST else f"{value[: LONGEST - 1]}…")


def number(value: int, *, bad: bool = False) -> Cell:
    """A count; `bad` ones are marked if there are any."""
    return Cell(f"{value:,}", "n zero" if not value else "n worse" if bad else "n")


def share(value: float | None, *, limit: float = 2.0) -> Cell:
    """A share of a hundred, marked from a limit on."""
    kind = "n zero" if not value else "n worse" if value >= limit else "n"
    return Cell(percent(value), kind)


def length(value: float | None, *, set_apart: bool = False) -> Cell:
    """A length of time."""
    kind = "n zero" if value is None else "n"
    return Cell(seconds(value), f"{kind} set" if set_apart else kind)


def when(value: datetime | None) -> Cell:
    """A moment."""
    return Cell(NOTHING if value is None else clock(value), "when")


def grid(
    caption: str,
    columns: Sequence[tuple[str, str | None]],
    rows: Iterable[Row],
    *,
    over: Sequence[tuple[str, int]] = (),
    kind: str | None = None,
) -> Markup:
    """A table; the first cell of a row is its head. `over` names groups of columns."""
    above = None
    if over:
        heads = (
            element("th", name or None, colspan=span, scope="colgroup" if name else None)
            for name, span in over
        )
        above = element("tr", *heads, class_="over")
    names = element(
        "tr", *(element("th", name, scope="col", class_=shown) for name, shown in columns)
    )
    body = (
        element(
            "tr",
            element("th", row[0].inside, scope="row", class_=row[0].kind),
            *(element("td", cell.inside, class_=cell.kind) for cell in row[1:]),
        )
        for row in rows
    )
    drawn = element(
        "table",
        element("caption", caption),
        element("thead", above, names),
        element("tbody", *body),
        class_=kind,
    )
    return element("div", drawn, class_="scroll", tabindex="0", role="region", aria_label=caption)


def folded(summary: str, inside: Markup) -> Markup:
    """Something that is shown when it is asked for."""
    return element("details", element("summary", summary), inside)
