"""Dead letters by what caused them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from queuecraft.pipeline.report.figures import FailureGroup, Figures
from queuecraft.pipeline.report.findings import cause
from queuecraft.pipeline.report.markup import Markup, element, joined
from queuecraft.pipeline.report.plots import share_bar
from queuecraft.pipeline.report.sections.section import Section, at, nothing, section
from queuecraft.pipeline.report.units import plural, short

LONGEST = 400  # characters of an error


def failures(figures: Figures, lake: str) -> Section:
    """Groups of dead letters, the largest first."""
    if not figures.groups:
        return section("failures", "Failures", nothing("No dead letters."))
    most = max(each.count for each in figures.groups)
    more = None
    if figures.more_groups:
        more = nothing(f"and {plural(figures.more_groups, 'smaller group')}")
    command = f"queuecraft lake triage {shlex.quote(lake)}"
    return section(
        "failures",
        "Failures",
        *(_group(each, each.count / max(most, 1)) for each in figures.groups),
        more,
        element("p", element("code", command), class_="run"),
        hint="Dead letters with the same cause, the most frequent first. The command below shows "
        "their payloads and how to send them back.",
    )


def _group(group: FailureGroup, share: float) -> Markup:
    text = cause(group)
    about = [part for part in (group.queue, group.event, group.reason) if part]
    seen = f"first {at(group.first_seen)}, last {at(group.last_seen)}"
    examples = None
    if group.message_ids:
        named = _listed(group.message_ids[:3])
        examples = element("p", f"group {group.fingerprint}, as in ", *named, class_="meta")
    return element(
        "article",
        element("b", short(group.count), class_="count"),
        element(
            "div",
            element("h3", text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"),
            element("p", " · ".join([*about, seen]), class_="meta"),
            share_bar(share),
            examples,
            class_="why",
        ),
        class_="group",
    )


def _listed(ids: Iterable[str]) -> Iterable[Markup]:
    for place, each in enumerate(ids):
        yield joined(", " if place else None, element("code", each))
