"""How payloads change."""

from __future__ import annotations

from queuecraft.pipeline.report.figures import Drift
from queuecraft.pipeline.report.grid import Cell, grid, text, when
from queuecraft.pipeline.report.markup import element
from queuecraft.pipeline.report.sections.section import Section, nothing, section
from queuecraft.pipeline.report.units import percent, plural

COLUMNS = (
    *(("event", None), ("field", None), ("type", None), ("change", None), ("share", "n")),
    *(("first seen", None), ("last seen", None)),
)


def schema(drift: Drift) -> Section:
    """The fields that are new, gone, or of another type."""
    known = f"{plural(drift.fields, 'field')} in payloads of {plural(drift.events, 'event')}."
    if not drift.changes:
        told = f"No change in {known}" if drift.fields else "No payloads were archived."
        return section("drift", "Schema", nothing(told))
    rows = (
        [
            text(each.event),
            Cell(element("code", each.field)),
            text(each.type),
            Cell(element("span", each.change, class_=f"tag {each.change}")),
            Cell(percent(each.share), "n"),
            when(each.first_seen),
            when(each.last_seen),
        ]
        for each in drift.changes
    )
    more = nothing(f"and {drift.more:,} more") if drift.more else None
    return section(
        "drift",
        "Schema",
        grid("Changes of payloads", COLUMNS, rows),
        more,
        hint=f"What changed among {known}",
    )
