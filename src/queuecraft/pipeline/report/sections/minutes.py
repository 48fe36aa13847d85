"""The minutes to look at first."""

from __future__ import annotations

from collections.abc import Iterable

from queuecraft.pipeline.report.figures import Figures, Minute
from queuecraft.pipeline.report.grid import grid, length, number, text, when
from queuecraft.pipeline.report.markup import Markup, element, joined
from queuecraft.pipeline.report.sections.section import Section, section

COLUMNS = (
    *(("minute (UTC)", None), ("queue", None), ("event", None), ("delivered", "n")),
    *(("failed", "n"), ("dead", "n"), ("latency p99", "n")),
)


def minutes(figures: Figures) -> Section:
    """Those with the most failures, and the slowest."""
    return section(
        "minutes",
        "Minutes",
        element(
            "div",
            _table("With the most failures", figures.worst) if figures.worst else None,
            _table("The slowest", figures.slowest) if figures.slowest else None,
            class_="stack",
        ),
    )


def _table(caption: str, chosen: Iterable[Minute]) -> Markup:
    rows = (
        [
            when(each.at),
            text(each.queue),
            text(each.event),
            number(each.counts.delivered),
            number(each.counts.failed, bad=True),
            number(each.counts.dead, bad=True),
            length(each.p99),
        ]
        for each in chosen
    )
    return element("div", joined(element("h3", caption), grid(caption, COLUMNS, rows)))
