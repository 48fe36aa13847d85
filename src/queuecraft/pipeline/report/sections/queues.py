"""How each queue does."""

from __future__ import annotations

from queuecraft.pipeline.report.figures import Axis, Figures, QueueFigures, Series
from queuecraft.pipeline.report.grid import Row, grid, length, number, share, text
from queuecraft.pipeline.report.markup import Markup, element
from queuecraft.pipeline.report.plots import latency_plot, legend, throughput_plot
from queuecraft.pipeline.report.sections.section import Section, nothing, section
from queuecraft.pipeline.report.sections.time import PERCENTILES
from queuecraft.pipeline.report.units import percent, plural, seconds, short

COLUMNS = (
    *(("queue", None), ("published", "n"), ("delivered", "n"), ("succeeded", "n")),
    *(("failed", "n"), ("retried", "n"), ("dead", "n")),
    *(("p50", "n set"), ("p95", "n"), ("p99", "n")) * 3,
)
GROUPS = (("", 7), ("wait", 3), ("in handlers", 3), ("latency", 3))


def queues(figures: Figures) -> Section:
    """A row for each queue, and plots of the busiest."""
    table = grid("Queues", COLUMNS, map(_row, figures.queues), over=GROUPS)
    more = None
    if figures.more_queues:
        more = nothing(f"and {plural(figures.more_queues, 'queue')} less busy")
    drawn: list[Markup] = []
    axis = figures.axis
    if axis is not None and len(figures.queues) > 1:  # of one, the plots above tell all
        plotted = ((each, each.series) for each in figures.queues)
        drawn = [_plots(axis, each, series) for each, series in plotted if series is not None]
    hint = "The busiest first; below, each opens with its plots." if drawn else None
    return section("queues", "Queues", table, more, *drawn, hint=hint)


def _row(each: QueueFigures) -> Row:
    counts = each.counts
    return [
        text(each.queue),
        *map(number, (counts.published, counts.delivered, counts.succeeded)),
        share(counts.failure_rate, limit=0.05),
        share(counts.retry_rate),
        number(counts.dead, bad=True),
        *(
            length(value, set_apart=place == 0)
            for times in (each.speed.wait, each.speed.duration, each.speed.latency)
            for place, value in enumerate(times.values)
        ),
    ]


def _plots(axis: Axis, each: QueueFigures, series: Series) -> Markup:
    told = (
        f"{short(each.counts.delivered)} delivered, {percent(each.counts.failure_rate)} failed, "
        f"p95 {seconds(each.speed.latency.p95)}"
    )
    return element(
        "details",
        element("summary", element("b", each.queue), element("span", told)),
        element(
            "div",
            element(
                "div",
                element("div", element("h3", "Throughput"), class_="head"),
                throughput_plot(axis, series.counts, tall=False),
            ),
            element(
                "div",
                element("div", element("h3", "Latency"), legend(*PERCENTILES), class_="head"),
                latency_plot(axis, series.latency, tall=False),
            ),
            class_="twin",
        ),
        class_="queue",
    )
