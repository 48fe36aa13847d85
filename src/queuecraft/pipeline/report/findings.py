"""What stands out in a report, in sentences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from queuecraft.pipeline.report.axis import clock
from queuecraft.pipeline.report.figures import FailureGroup, Figures
from queuecraft.pipeline.report.units import percent, plural

Level: TypeAlias = Literal["bad", "odd", "good"]

MOST = 8
MANY_FAILURES = 0.05  # of the deliveries of a queue
FEW = 10  # failures that may be chance
LONG = 100  # messages of a backlog that is worth a word


@dataclass(frozen=True, slots=True)
class Finding:
    """Something worth a look, and the section with more on it."""

    level: Level
    text: str
    section: str


def findings(figures: Figures) -> list[Finding]:
    """What a person on call should know first, the worst on top.

    >>> [each.text for each in findings(Figures(scope="everything"))]
    ['Nothing stands out.']
    """
    found = [*_failures(figures), *_growth(figures), *_data(figures)]
    found.sort(key=lambda each: each.level != "bad")
    return found[:MOST] or [Finding("good", "Nothing stands out.", "overview")]


def cause(group: FailureGroup) -> str:
    """Why a group failed, as short as it can be said."""
    kind = (group.error_type or "").rpartition(".")[2]
    said = ": ".join(filter(None, (kind, " ".join((group.error or "").split()))))
    return said or group.reason or "unknown"


def _failures(figures: Figures) -> Iterable[Finding]:
    for group in figures.groups[:3]:
        text = cause(group)
        short = text if len(text) <= 90 else f"{text[:89]}…"
        yield Finding(
            "bad", f"{group.queue}: {plural(group.count, 'dead letter')}, {short}", "failures"
        )
    for each in figures.queues:
        rate = each.counts.failure_rate or 0.0
        if rate >= MANY_FAILURES and each.counts.failed >= FEW:
            yield Finding("bad", f"{each.queue}: {percent(rate)} of its deliveries fail", "queues")


def _growth(figures: Figures) -> Iterable[Finding]:
    for each in figures.growth:
        if each.backlog >= LONG and each.backlog >= 0.9 * each.highest:
            text = f"{each.queue}: {each.backlog:,} messages wait, as many as ever"
            yield Finding("bad", text, "growth")
    latest: dict[str | None, int] = {}
    for anomaly in figures.anomalies:
        latest[anomaly.queue] = latest.get(anomaly.queue, 0) + 1
        if latest[anomaly.queue] == 1:
            change = anomaly.arrived - anomaly.left
            how = "grew" if change >= 0 else "shrank"
            yield Finding(
                "odd",
                f"{anomaly.queue}: {how} by {abs(change):,} at {clock(anomaly.at)} UTC, "
                f"usually {_change(anomaly.usual)} a minute",
                "growth",
            )


def _change(usual: float | None) -> str:
    return f"{usual:+,.0f}" if usual and abs(usual) >= 0.5 else "0"


def _data(figures: Figures) -> Iterable[Finding]:
    bad = sum(each.count for each in figures.quarantine)
    if bad:
        what = figures.quarantine[0].problem
        yield Finding("odd", f"{plural(bad, 'row')} cannot be read, most: {what}", "quarantine")
    for each in figures.drift.changes:
        if each.change == "type":
            text = f"{each.event}: {each.field} also comes as {each.type}"
            yield Finding("odd", text, "drift")
    gone = [each for each in figures.drift.changes if each.change == "gone"]
    if gone:
        names = ", ".join(f"{each.event} {each.field}" for each in gone[:3])
        yield Finding("odd", f"{plural(len(gone), 'field')} no longer sent: {names}", "drift")
