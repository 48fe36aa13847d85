"""What a run found: a table for people, plain text for pipes, rows for the page."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.harness import Group, Plan, Results, Series, Skipped, Verdict, fastest
from benchmarks.pairs.entries import OURS
from benchmarks.results import Row, Section
from benchmarks.words import WORDS, Words
from tests.checkout import commit

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
    "aiokafka",
    "confluent-kafka",
    "faststream",
    "celery",
    "taskiq",
    "taskiq-aio-pika",
    "taskiq-redis",
    "taskiq-aio-kafka",
    "pydantic",
    "dramatiq",
    "kombu",
    "uvloop",
)

OPTIONS = "options"
PLACES = {
    "memory": ("memory", "end to end"),
    "file-publish": ("file", "publish"),
    "file-consume": ("file", "consume"),
    "file": ("file", "end to end, in one process"),
    "rabbitmq-publish": ("rabbitmq", "publish"),
    "rabbitmq-consume": ("rabbitmq", "consume"),
    "redis-publish": ("redis", "publish"),
    "redis-consume": ("redis", "consume"),
    "kafka-publish": ("kafka", "publish"),
    "kafka-consume": ("kafka", "consume"),
    "journal": (OPTIONS, "cost of options: the journal"),
    "middleware": (OPTIONS, "cost of options: middleware"),
    "observers": (OPTIONS, "cost of options: observers"),
}
"""Broker and name of the table that a group becomes."""

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
    """Where the figures come from; without it they mean little. Ask before the run, during which a
    commit may be made."""
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
        "commit": commit(),
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
    most = "" if verdict.limit is None else f"; the broker itself: {verdict.limit:.1f}{unit}"
    return (
        f"{word:<12}  {verdict.text}: {figure.median:.1f}{unit} ({figure.low:.1f}–{figure.high:.1f}"
        f"; owed: {verdict.owed}{most}; against {verdict.against})"
    )


def notes(outcome: Outcome, plan: Plan) -> list[str]:
    """What a reader has to know to read the table."""
    made = max((len(series.measurements) for series in outcome.results.values()), default=0)
    lines = [
        f"median of {made} interleaved rounds; spread is lowest to highest",
        f"at most {plan.messages:,} messages and about {plan.seconds:g} s a run",
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


def section(outcome: Outcome, plan: Plan) -> Section:
    """The group as a table of the page."""
    group = outcome.group
    broker, name = PLACES[group.name]
    rows: list[Row] = []
    for series in outcome.results.values():
        case = series.case
        words = WORDS.get((group.name, case.contender))
        if words is None:  # one of ours that is compared with nobody's
            words = Words(setting="")
        ours = case.contender == OURS
        rows.append(
            Row(
                contender=case.contender,
                case=case.name,
                setting=words.setting,
                weaker=words.weaker_in.get(case.name, words.weaker),
                against="" if ours else words.against.get(case.name, case.name),
                differs=words.differs,
                figures=series.rates,
            )
        )
    return Section(
        broker=broker,
        name=name,
        unit="msg/s",
        throughput=broker != OPTIONS,
        rounds=max((len(row.figures) for row in rows), default=0),
        note=f"{notes(outcome, plan)[1].capitalize()}.",
        rows=rows,
        missing={skipped.contender: skipped.reason for skipped in outcome.skipped},
    )
