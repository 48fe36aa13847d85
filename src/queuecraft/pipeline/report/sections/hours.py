"""When in the day, and in the week, there is most to do."""

from __future__ import annotations

import math

from queuecraft.pipeline.report.figures import Counts, Heat
from queuecraft.pipeline.report.markup import Markup, element, joined
from queuecraft.pipeline.report.sections.section import Section, section

SHADES = 6
MANY_FAILURES = 0.05


def hours(heat: Heat) -> Section:
    """A map with a cell for each hour: the numbers are in its cells."""
    most = max((each.delivered for _, row in heat.rows for each in row), default=0)
    names = (element("th", element("span", f"{hour:02}"), scope="col") for hour in range(24))
    table = element(
        "table",
        element("caption", "Deliveries by hour"),
        element("colgroup", element("col", class_="days"), element("col", span=24)),
        element("thead", element("tr", element("td"), *names)),
        element(
            "tbody",
            *(
                element(
                    "tr",
                    element("th", _day(day), scope="row"),
                    *(_cell(day, hour, counts, most) for hour, counts in enumerate(row)),
                )
                for day, row in heat.rows
            ),
        ),
        class_="heat weekly" if heat.weekly else "heat",
    )
    by = "day of the week" if heat.weekly else "day"
    return section(
        "hours",
        "Hours",
        element("div", table, class_="scroll"),
        hint=f"Deliveries by {by} and hour, UTC: the stronger the colour, the more, up to "
        f"{most:,} in an hour. A red dot: at least one in twenty failed.",
    )


def _day(name: str) -> Markup:
    weekday, _, day = name.partition(" ")
    return joined(weekday, element("span", f" {day}", class_="day") if day else None)


def _cell(day: str, hour: int, counts: Counts, most: int) -> Markup:
    shade = None
    if counts.delivered:
        # By the root, so that quiet hours can be told from silent ones.
        shade = f"h{max(1, math.ceil(SHADES * math.sqrt(counts.delivered / most)))}"
    failing = (counts.failure_rate or 0.0) >= MANY_FAILURES
    return element(
        "td",
        element("i", aria_hidden="true") if failing else None,
        element("span", f"{counts.delivered:,}", class_="sr"),
        title=f"{day} {hour:02}:00: {counts.delivered:,} delivered, {counts.failed:,} failed",
        class_=shade,
    )
