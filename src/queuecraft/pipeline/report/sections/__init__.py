"""The parts of the page, from top to bottom."""

from __future__ import annotations

from collections.abc import Iterable

from queuecraft.pipeline.report.figures import Figures
from queuecraft.pipeline.report.sections.failures import failures
from queuecraft.pipeline.report.sections.growth import growth
from queuecraft.pipeline.report.sections.hours import hours
from queuecraft.pipeline.report.sections.minutes import minutes
from queuecraft.pipeline.report.sections.overview import overview
from queuecraft.pipeline.report.sections.quarantine import quarantine
from queuecraft.pipeline.report.sections.queues import queues
from queuecraft.pipeline.report.sections.schema import schema
from queuecraft.pipeline.report.sections.section import Section
from queuecraft.pipeline.report.sections.time import latency, throughput


def all_of(figures: Figures, lake: str) -> Iterable[Section]:
    """Those that have something to show, or whose emptiness is good to know."""
    yield overview(figures)
    if figures.axis is not None:
        yield throughput(figures.axis, figures.series)
        yield latency(figures.axis, figures)
    if figures.queues:
        yield queues(figures)
    yield failures(figures, lake)
    if figures.axis is not None:
        yield growth(figures.axis, figures)
        yield hours(figures.heat)
    if figures.worst or figures.slowest:
        yield minutes(figures)
    yield schema(figures.drift)
    yield quarantine(figures)
