"""A part of the page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from queuecraft.pipeline.report.axis import clock
from queuecraft.pipeline.report.markup import Inside, Markup, element
from queuecraft.pipeline.report.units import NOTHING


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page, with the name that leads to it."""

    id: str
    name: str
    markup: Markup


def section(id: str, title: str, *inside: Inside, hint: str | None = None) -> Section:
    """A card with a title, and a line on how to read it.

    >>> section("growth", "Growth", element("p", "…")).markup
    '<section id="growth"><h2>Growth</h2><p>…</p></section>'
    """
    told = element("p", hint, class_="hint") if hint else None
    return Section(id, title, element("section", element("h2", title), told, *inside, id=id))


def nothing(text: str) -> Markup:
    """Why there is nothing to see, or what is left out."""
    return element("p", text, class_="none")


def at(moment: datetime | None) -> str:
    """A moment, or a dash."""
    return NOTHING if moment is None else clock(moment)
