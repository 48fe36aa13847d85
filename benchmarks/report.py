"""What a run found: a table for people, plain text for pipes, JSON for later."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.harness import Group, Plan, Results, Series, Skipped, Spread, Verdict, fastest

PACKAGES = (
    "queuecraft",
    "msgspec",
    "apsw",
    "pamqp",
    "hiredis",
    "redis",
    "aiormq",
    "aio-pika",
    "pika",
    "faststream",
    "celery",
    "taskiq",
    "taskiq-aio-pika",
    "taskiq-redis",
    "pydantic",
    "dramatiq",
    "kombu",
    "uvloop",
)

COLUMNS = ("contender", "case", "msg/s", "spread", "ratio")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One group, measured and judged."""

    group: Group
    results: Results
    skipped: Sequence[Skipped]

    @property
    def reference(self) -> Series | None:
        return fastest(self.results, self.group.reference)

    @property
    def verdicts(self) -> list[Verdict]:
        return [claim.judge(self.results) for claim in self.group.claims]


def environment(loop: str) -> dict[str, Any]:
    """Where the figures come from; without it they mean little."""
    packages: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = None
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "loop": loop,
        "packages": packages,
    }


def rows(outcome: Outcome) -> list[tuple[str, ...]]:
    """One row a case, as text, in the order of COLUMNS."""
    reference = outcome.reference
    table: list[tuple[str, ...]] = []
    for series in outcome.results.values():
        rate = series.rate
        ratio = f"{series.ratio(reference).median:.2f}×" if reference else "–"
        table.append(
            (
                series.case.contender,
                series.case.name,
                f"{rate.median:,.0f}",
                f"{rate.low:,.0f}–{rate.high:,.0f}",
                ratio,
            )
        )
    return table


def sentence(verdict: Verdict) -> str:
    """A verdict in one line."""
    if verdict.figure is None:
        return f"not measured  {verdict.text} (owed: {verdict.owed})"
    word = "holds" if verdict.holds else "misses"
    figure, unit = verdict.figure, verdict.unit
    return (
        f"{word:<12}  {verdict.text}: {figure.median:.1f}{unit}"
        f" ({figure.low:.1f}–{figure.high:.1f}; owed: {verdict.owed}; against {verdict.against})"
    )


def notes(outcome: Outcome, plan: Plan) -> list[str]:
    """What a reader has to know to read the table."""
    lines = [
        f"median of {plan.rounds} interleaved rounds; spread is lowest to highest",
        f"{plan.messages:,} messages a run"
        if outcome.group.messages
        else f"at most {plan.messages:,} messages and about {plan.seconds:g} s a run",
    ]
    if reference := outcome.reference:
        lines.append(f"ratio is to {reference.case.key}, compared round by round")
    lines.extend(f"SKIPPED {skipped.contender}: {skipped.reason}" for skipped in outcome.skipped)
    return lines


def show(outcome: Outcome, plan: Plan, console: Console) -> None:
    """Print a group: as a table on a terminal, as plain columns elsewhere."""
    if console.is_terminal:
        _show_table(outcome, plan, console)
        return
    for line in plain(outcome, plan):
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def plain(outcome: Outcome, plan: Plan) -> list[str]:
    """The lines of a group for a file or a pipe."""
    table = [COLUMNS, *rows(outcome)]
    widths = [max(len(row[column]) for row in table) for column in range(len(COLUMNS))]
    lines = [outcome.group.title, ""]
    for row in table:
        cells = [
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return [*lines, "", *notes(outcome, plan), "", *map(sentence, outcome.verdicts)]


def _show_table(outcome: Outcome, plan: Plan, console: Console) -> None:
    table = Table(title=outcome.group.title, box=SIMPLE_HEAD)
    for column, name in enumerate(COLUMNS):
        table.add_column(name, justify="left" if column < 2 else "right", no_wrap=column >= 2)
    for row in rows(outcome):
        table.add_row(*row, style="bold" if row[0] == "QueueCraft" else "")
    console.print(table)
    for line in notes(outcome, plan):
        console.print(Text(line, style="yellow" if line.startswith("SKIPPED") else "dim"))
    console.print()
    colours = {True: "green", False: "red", None: "yellow"}
    for verdict in outcome.verdicts:
        console.print(Text(sentence(verdict), style=colours[verdict.holds]))


def document(
    outcomes: Sequence[Outcome], plan: Plan, *, loop: str, at: datetime | None = None
) -> dict[str, Any]:
    """All of it, for a machine."""
    return {
        "format": 1,
        "at": (at or datetime.now(UTC)).isoformat(timespec="seconds"),
        "environment": environment(loop),
        "plan": asdict(plan),
        "groups": [_group(outcome) for outcome in outcomes],
    }


def write(path: Path, contents: dict[str, Any]) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(contents), indent=2) + b"\n")


def _group(outcome: Outcome) -> dict[str, Any]:
    reference = outcome.reference
    return {
        "name": outcome.group.name,
        "reference": reference.case.key if reference else None,
        "cases": [_case(series, reference) for series in outcome.results.values()],
        "claims": [
            {
                "text": verdict.text,
                "owed": verdict.owed,
                "figure": _spread(verdict.figure),
                "unit": verdict.unit.strip(),
                "against": verdict.against,
                "holds": verdict.holds,
            }
            for verdict in outcome.verdicts
        ],
        "skipped": [asdict(skipped) for skipped in outcome.skipped],
    }


def _case(series: Series, reference: Series | None) -> dict[str, Any]:
    return {
        "name": series.case.name,
        "contender": series.case.contender,
        "messages": series.measurements[0].messages,
        "seconds": [measurement.seconds for measurement in series.measurements],
        "rate": _spread(series.rate),
        "ratio": _spread(series.ratio(reference)) if reference else None,
    }


def _spread(spread: Spread | None) -> dict[str, float] | None:
    return None if spread is None else asdict(spread)
