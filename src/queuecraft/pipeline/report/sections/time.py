"""How much and how fast, over time."""

from __future__ import annotations

from queuecraft.pipeline.report.axis import stretch
from queuecraft.pipeline.report.figures import Axis, Counts, Figures, Series
from queuecraft.pipeline.report.grid import folded, grid, length, number, when
from queuecraft.pipeline.report.markup import element
from queuecraft.pipeline.report.plots import latency_plot, legend, throughput_plot
from queuecraft.pipeline.report.sections.section import Section, nothing, section

OUTCOMES = (
    ("ok", "succeeded"),
    ("retry", "retried"),
    ("dead", "dead"),
    ("other", "dropped or expired"),
    ("published line", "published"),
)
PERCENTILES = (("p50 line", "p50"), ("p95 line", "p95"), ("p99 line", "p99"))
COLUMNS = ("published", "delivered", "succeeded", "retried", "dead", "dropped", "expired")


def throughput(axis: Axis, series: Series) -> Section:
    """Deliveries by what came of them."""
    rows = (
        [when(axis.moment(place)), *(number(getattr(each, name)) for name in COLUMNS)]
        for place, each in enumerate(series.counts)
        if each != Counts()
    )
    columns = [("from (UTC)", None), *((name, "n") for name in COLUMNS)]
    return section(
        "throughput",
        "Throughput",
        element("div", legend(*OUTCOMES), class_="head"),
        throughput_plot(axis, series.counts),
        folded("Show the numbers", grid(f"Messages by {stretch(axis)}", columns, rows)),
        hint=f"Deliveries by their outcome, each {stretch(axis)}; the line is what was published.",
    )


def latency(axis: Axis, figures: Figures) -> Section:
    """How long messages took until they were settled."""
    hint = f"From due to settled, of the messages settled in each {stretch(axis)}."
    if figures.latency.p50 is None:
        none = nothing("No message was settled in this time.")
        return section("latency", "Latency", none, hint=hint)
    rows = (
        [when(axis.moment(place)), *(length(value) for value in each.values)]
        for place, each in enumerate(figures.series.latency)
        if each.p50 is not None
    )
    columns = [("from (UTC)", None), ("p50", "n"), ("p95", "n"), ("p99", "n")]
    return section(
        "latency",
        "Latency",
        element("div", legend(*PERCENTILES), class_="head"),
        latency_plot(axis, figures.series.latency),
        folded("Show the numbers", grid(f"Latency by {stretch(axis)}", columns, rows)),
        hint=hint,
    )
