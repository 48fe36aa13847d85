"""The numbers that matter most, and what stands out."""

from __future__ import annotations

from collections.abc import Sequence

from queuecraft.pipeline.report.figures import Figures
from queuecraft.pipeline.report.findings import findings
from queuecraft.pipeline.report.markup import Markup, element
from queuecraft.pipeline.report.plots import sparkline
from queuecraft.pipeline.report.sections.section import Section, nothing
from queuecraft.pipeline.report.units import percent, plural, seconds, short


def overview(figures: Figures) -> Section:
    """Six numbers, then sentences."""
    told = element(
        "ul",
        *(
            element("li", element("a", each.text, href=f"#{each.section}"), class_=each.level)
            for each in findings(figures)
        ),
        class_="found",
    )
    if figures.empty:
        told = nothing("There is nothing in this lake yet, or nothing of what was asked for.")
    unseen = None
    if figures.unseen:
        unseen = element(
            "p",
            f"{plural(figures.unseen, 'message')} published that no worker has reported on: they "
            "wait, no queue is bound to their event, or their worker keeps no journal.",
            class_="hint",
        )
    markup = element(
        "section",
        element("h2", "Overview", class_="sr"),
        _tiles(figures),
        told,
        unseen,
        class_="bare",
        id="overview",
    )
    return Section("overview", "Overview", markup)


def _tiles(figures: Figures) -> Markup:
    counts = figures.counts
    times = figures.series.counts
    succeeded = counts.succeeded / counts.delivered if counts.delivered else None
    latency = [each.p95 for each in figures.series.latency]
    return element(
        "ul",
        _tile("Published", short(counts.published), [x.published for x in times], "published"),
        _tile("Delivered", short(counts.delivered), [x.delivered for x in times], "ok"),
        _tile("Succeeded", percent(succeeded), [x.succeeded for x in times], "ok"),
        _tile("Retried", percent(counts.retry_rate), [x.retried for x in times], "retry"),
        _tile("Dead letters", short(counts.dead), [x.dead for x in times], "dead", counts.dead > 0),
        _tile("Latency p95", seconds(figures.latency.p95), latency, "p95"),
        class_="tiles",
    )


def _tile(
    name: str, value: str, values: Sequence[float | None], kind: str, bad: bool = False
) -> Markup:
    drawn = sparkline(values, kind) if any(values) else None
    number = element("b", value, class_="dead" if bad else None)
    return element("li", element("span", name), number, drawn)
