"""Half an hour of mixed load with faults on every broker: `python -m tests.faults.soak`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.faults.matrix.__main__ import children, those
from tests.faults.matrix.brokers import ROWS, Row
from tests.faults.matrix.versions import ours
from tests.faults.nursery import Nursery
from tests.faults.soak.course import Outcome, soak
from tests.faults.soak.page import Run, page, read
from tests.faults.soak.page import json as told
from tests.test_house import ROOT

PAGE = ROOT / "docs" / "soak.md"
RESULTS = ROOT / "tests" / "faults" / "results" / "soak.json"
MINUTES = 30.0
WIDE = 120


async def one(
    kind: type[Row],
    nursery: Nursery,
    seconds: float,
    progress: Progress,
    versions: dict[str, str],
    keep: Path | None,
) -> Outcome:
    """The course of one broker, from its start to its end."""
    task = progress.add_task(kind.name, total=seconds)
    row = kind()
    try:
        await asyncio.to_thread(row.start)
        outcome = await soak(
            row,
            nursery,
            seconds=seconds,
            hear=lambda passed: progress.update(task, completed=min(passed, seconds)),
            keep=keep,
        )
        versions |= await asyncio.to_thread(row.versions)
    finally:
        await asyncio.to_thread(row.close)
    ended = "; ".join(outcome.complaints) or "well"
    progress.console.print(f"{kind.name}: {ended}", markup=False, highlight=False, soft_wrap=True)
    return outcome


async def every(
    kinds: Sequence[type[Row]],
    seconds: float,
    console: Console,
    versions: dict[str, str],
    keep: Path | None,
) -> list[Outcome]:
    """All brokers at the same time; what they are is noted in `versions`."""
    columns = (TextColumn("{task.description:<20}"), BarColumn(), TimeElapsedColumn())
    with children() as nursery, Progress(*columns, console=console) as progress:
        return list(
            await asyncio.gather(
                *(one(kind, nursery, seconds, progress, versions, keep) for kind in kinds)
            )
        )


def table(outcomes: Sequence[Outcome]) -> Table:
    """What came of it."""
    numbers = ("troubles", "waiting", "stored", "lost", "twice", "dead")
    shown = Table("broker", *numbers, "MiB", "files", "threads", show_lines=True)
    for each in outcomes:
        row = [ROWS[each.broker].name, f"{each.troubles:,}", f"{each.waiting:,}"]
        if (told := each.tally) is not None:
            counts = (told.acknowledged, len(told.lost), told.twice, told.dead)
            row += [f"{count:,}" for count in counts]
            grown = each.growth
            row.append("\n".join(f"{g.before.memory:.1f} → {g.after.memory:.1f}" for g in grown))
            row.append("\n".join(f"{g.before.descriptors} → {g.after.descriptors}" for g in grown))
            row.append("\n".join(f"{g.before.threads} → {g.after.threads}" for g in grown))
        shown.add_row(*row)
    shown.caption = (
        "Waiting: the most at any time. The first line is of a publisher, the second of a worker, "
        "never restarted."
    )
    return shown


def main(
    minutes: Annotated[float, typer.Option(min=0.5, help="How long the load lasts.")] = MINUTES,
    broker: Annotated[
        list[str] | None, typer.Option(help=f"Only this one: {', '.join(ROWS)}.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="The page; docs/soak.md if all brokers take part, else none."),
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(help="A folder for what was written down where it went wrong.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Run nothing: make docs/soak.md anew.")
    ] = False,
) -> None:
    """Load, kill, cut and freeze for a long time; nothing may be lost, and nothing may grow."""
    if again:
        PAGE.write_text(page(read(RESULTS.read_bytes())), encoding="utf-8")
        return
    console = Console(stderr=json)
    if not console.is_terminal:  # a log has room for the table
        console.width = WIDE
    kinds = those(broker, ROWS, "--broker")
    if out is None and not broker:
        out = PAGE
    date, versions = datetime.now(UTC), dict(ours())
    try:
        outcomes = asyncio.run(every(kinds, 60 * minutes, console, versions, keep))
    except KeyboardInterrupt:
        console.print("Stopped.")
        raise typer.Exit(130) from None
    if json:
        typer.echo(msgspec.json.encode(outcomes))
    else:
        console.print(table(outcomes))
    if out is not None:
        run = Run(date=date, minutes=minutes, versions=versions, outcomes=outcomes)
        out.write_text(page(run), encoding="utf-8")
        if out.resolve() == PAGE:
            RESULTS.parent.mkdir(exist_ok=True)
            RESULTS.write_bytes(told(run))
        console.print(f"Written: {out}", highlight=False)
    complaints = [(each.broker, text) for each in outcomes for text in each.complaints]
    for name, text in complaints:
        console.print(f"{ROWS[name].name}: {text}", style="red", markup=False, highlight=False)
    if complaints:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
