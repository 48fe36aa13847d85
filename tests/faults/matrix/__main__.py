"""Every broker against every fault: `python -m tests.faults.matrix` writes docs/reliability.md."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.faults.matrix.brokers import ROWS, Row
from tests.faults.matrix.cell import run
from tests.faults.matrix.faults import FAULTS, Fault
from tests.faults.matrix.report import Report, json, markdown, read, summary_of
from tests.faults.matrix.result import Result
from tests.faults.matrix.room import seclude
from tests.faults.matrix.versions import ours
from tests.faults.nursery import ROOT, Nursery

PAGE = ROOT / "docs" / "reliability.md"
RESULTS = ROOT / "tests" / "faults" / "results" / "reliability.json"
MESSAGES = 1000

Known = TypeVar("Known")


@contextmanager
def children() -> Generator[Nursery]:
    """Where publishers and workers come from. Ctrl-C is for this program: it ends them itself."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # which those who are born inherit
    try:
        nursery = Nursery()
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        yield nursery
    finally:
        nursery.close()


async def rows(
    kinds: Sequence[type[Row]],
    faults: Sequence[Fault],
    nursery: Nursery,
    versions: dict[str, str],
    *,
    messages: int,
    keep: Path | None,
) -> AsyncGenerator[Result]:
    """The cells, broker by broker."""
    for kind in kinds:
        row: Row | None = None
        try:
            for fault in faults:
                if row is None:
                    row = kind()
                try:
                    await asyncio.to_thread(row.start)
                except Exception as error:
                    yield Result(broker=kind.key, fault=fault.key, failed=f"no broker: {error}")
                    continue
                result = await run(row, fault, nursery, messages=messages, keep=keep)
                if result.complaints:  # it may be in any state
                    await asyncio.to_thread(row.close)
                    row = None
                else:
                    versions |= await asyncio.to_thread(row.versions)
                yield result
        finally:
            if row is not None:
                row.close()


async def whole(
    kinds: Sequence[type[Row]],
    faults: Sequence[Fault],
    console: Console,
    *,
    messages: int,
    keep: Path | None,
) -> Report:
    """Run them all, and say how each has ended."""
    began, date = time.monotonic(), datetime.now(UTC)
    versions = dict(ours())
    results: list[Result] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with (
        children() as nursery,
        Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress,
    ):
        task = progress.add_task("fault matrix", total=len(kinds) * len(faults))
        cells = rows(kinds, faults, nursery, versions, messages=messages, keep=keep)
        try:
            async for result in cells:
                results.append(result)
                progress.console.print(line(result), markup=False, highlight=False, soft_wrap=True)
                progress.advance(task)
        finally:
            await cells.aclose()
    return Report(
        date=date,
        messages=messages,
        seconds=time.monotonic() - began,
        versions=versions,
        results=results,
    )


def line(result: Result) -> str:
    """A cell, for the terminal."""
    head = (
        f"{ROWS[result.broker].name:<20} {FAULTS[result.fault].name:<20} {summary_of(result):<18}"
    )
    if result.excused:
        return f"{head} {result.excused}"
    return f"{head} {result.seconds:>5.1f} s  {'; '.join(result.complaints)}".rstrip()


def those(keys: Sequence[str] | None, known: Mapping[str, Known], option: str) -> list[Known]:
    """The ones that were asked for, or all."""
    for key in keys or ():
        if key not in known:
            raise typer.BadParameter(
                f"there is no {key!r}; choose from {', '.join(known)}", param_hint=option
            )
    return [known[key] for key in keys or known]


def main(
    broker: Annotated[
        list[str] | None, typer.Option(help=f"Only this one: {', '.join(ROWS)}.")
    ] = None,
    fault: Annotated[
        list[str] | None, typer.Option(help=f"Only this one: {', '.join(FAULTS)}.")
    ] = None,
    messages: Annotated[
        int, typer.Option(min=100, help="At least so many in each cell.")
    ] = MESSAGES,
    out: Annotated[
        Path | None,
        typer.Option(help="The page; docs/reliability.md if the whole matrix is run, else none."),
    ] = None,
    json_too: Annotated[
        bool, typer.Option("--json", help="Write JSON beside a page that is elsewhere.")
    ] = False,
    keep: Annotated[
        Path | None,
        typer.Option(help="A folder for all that the processes of each cell wrote down."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Run nothing: make docs/reliability.md anew.")
    ] = False,
) -> None:
    """Let every fault happen to every broker, under load, and count what became of messages."""
    console = Console()
    if again:
        PAGE.write_text(markdown(read(RESULTS.read_bytes())), encoding="utf-8")
        return
    chosen = those(broker, ROWS, "--broker")
    columns = those(fault, FAULTS, "--fault")
    if out is None and not broker and not fault:
        out = PAGE
    if json_too and out is None:
        raise typer.BadParameter("say where: --out FILE.md", param_hint="--json")
    try:
        report = asyncio.run(whole(chosen, columns, console, messages=messages, keep=keep))
    except KeyboardInterrupt:
        console.print("Stopped; nothing was written.")
        raise typer.Exit(130) from None
    if out is not None:
        out.write_text(markdown(report), encoding="utf-8")
        console.print(f"Written: {out}", highlight=False)
        results = RESULTS if out.resolve() == PAGE else out.with_suffix(".json")
        if json_too or results == RESULTS:
            results.parent.mkdir(exist_ok=True)
            results.write_bytes(json(report))
    for result, text in report.complaints:
        place = f"{ROWS[result.broker].name} × {FAULTS[result.fault].name}"
        console.print(f"{place}: {text}", style="red", markup=False, highlight=False)
    if report.complaints:
        raise typer.Exit(1)


if __name__ == "__main__":
    seclude(sys.argv[1:])
    typer.run(main)
