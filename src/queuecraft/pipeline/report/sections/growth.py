"""Whether queues grow, and when that is unusual."""

from __future__ import annotations

from queuecraft.pipeline.report.figures import Axis, Figures, Growth
from queuecraft.pipeline.report.grid import Cell, folded, grid, number, text, when
from queuecraft.pipeline.report.markup import Markup, element
from queuecraft.pipeline.report.plots import backlog_plot, legend
from queuecraft.pipeline.report.sections.section import Section, nothing, section
from queuecraft.pipeline.report.units import NOTHING, plural

COLUMNS = (
    *(("queue", None), ("minute (UTC)", None), ("arrived", "n"), ("left", "n")),
    *(("usual change", "n"), ("deviations", "n")),
)


def growth(axis: Axis, figures: Figures) -> Section:
    """A plot for each queue, and the minutes that stand out."""
    drawn = [each for each in figures.growth if each.highest > 0 or each.anomalies]
    if not drawn:
        return section("growth", "Growth", nothing("No queue had anything waiting."))
    rows = (
        [
            text(each.queue),
            when(each.at),
            number(each.arrived),
            number(each.left),
            Cell(NOTHING if each.usual is None else f"{each.usual:+,.0f}", "n"),
            Cell(NOTHING if each.score is None else f"{each.score:,.1f}", "n"),
        ]
        for each in figures.anomalies
    )
    unusual = None
    if figures.anomalies:
        unusual = folded("Show the unusual minutes", grid("Unusual minutes", COLUMNS, rows))
    return section(
        "growth",
        "Growth",
        element("div", legend(("backlog line", "waiting"), ("mark", "unusual")), class_="head"),
        element("div", *(_plot(axis, each) for each in drawn), class_="twin"),
        unusual,
        hint="Messages that arrived and have not left, by queue.",
    )


def _plot(axis: Axis, each: Growth) -> Markup:
    told = f"{each.backlog:,} in the end, {each.highest:,} at most"
    if each.anomalies:
        told += f", {plural(each.anomalies, 'unusual minute')}"
    return element(
        "div",
        element("h3", each.queue),
        element("p", told, class_="hint"),
        backlog_plot(axis, each),
    )
