"""What could not be read."""

from __future__ import annotations

from queuecraft.pipeline.report.figures import Figures
from queuecraft.pipeline.report.grid import grid, number, text
from queuecraft.pipeline.report.sections.section import Section, nothing, section


def quarantine(figures: Figures) -> Section:
    """Rows by the reason."""
    if not figures.quarantine:
        return section("quarantine", "Quarantine", nothing("Every row could be read."))
    rows = (
        [text(each.problem), number(each.count), text(each.segment)] for each in figures.quarantine
    )
    columns = (("problem", None), ("rows", "n"), ("a segment that has one", None))
    return section(
        "quarantine",
        "Quarantine",
        grid("Rows that cannot be read", columns, rows),
        hint="Rows that cannot be read, and why. They are in no other number.",
    )
