"""The report on a lake: tables here, plots on a page."""

from __future__ import annotations

import os
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from queuecraft.cli.cluster import Master, Remote, session, waiting
from queuecraft.cli.moment import moment
from queuecraft.cli.output import AsJson, say, say_json, show
from queuecraft.cli.progress import progress
from queuecraft.model.errors import ConfigError, QueueError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from queuecraft.pipeline.lake import Lake
    from queuecraft.pipeline.report.figures import Figures
    from queuecraft.pipeline.report.scope import Scope

STYLES = {"bad": "red", "odd": "yellow", "good": "green"}

LakePath: TypeAlias = Annotated[
    Path, typer.Argument(metavar="PATH", help="The folder of the lake.")
]
Since: TypeAlias = Annotated[
    datetime | None,
    typer.Option(
        "--since", parser=moment, metavar="MOMENT", help="From then on, as 2030-01-01 or 2h (ago)."
    ),
]
Until: TypeAlias = Annotated[
    datetime | None,
    typer.Option("--until", parser=moment, metavar="MOMENT", help="Only what was before."),
]
Queues: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--queue", metavar="QUEUE", help="Only this queue; repeatable."),
]
Events: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--event", metavar="PATTERN", help="Only these events, as 'order.*'; repeatable."),
]
NoIngest: TypeAlias = Annotated[
    bool, typer.Option("--no-ingest", help="Leave out what is not in the tables yet.")
]


def report(
    path: LakePath,
    *,
    since: Since = None,
    until: Until = None,
    queue: Queues = None,
    event: Events = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="The page; PATH/report.html without it."),
    ] = None,
    no_ingest: NoIngest = False,
    master: Master = None,
    remote: Remote = None,
    as_json: AsJson = False,
) -> None:
    """Report on a lake: how much, how well and how fast, what failed and why, what grows, what
    changed. Prints tables, and writes a page with plots.

    Example: queuecraft report ./lake --since 7d --queue billing
    """
    from queuecraft.pipeline.report.page import page
    from queuecraft.pipeline.report.scope import Scope

    scope = Scope(since=since, until=until, queues=tuple(queue or ()), events=tuple(event or ()))
    target = path / "report.html" if html is None else html
    if not target.parent.is_dir() and html is not None:
        raise ConfigError(f"the folder {str(target.parent)!r} does not exist; make it first")
    spark, lake = opened(path, master, remote, ingest_first=not no_ingest, quick=True)
    figures = _figures(spark, lake, scope)
    write_whole(target, page(figures, title=path.absolute().name or "lake", lake=str(path)))
    if as_json:
        say_json({**asdict(figures), "page": str(target)})
        return
    _tell(figures)
    say(f"Page: {target}", "bold")


def opened(
    path: Path,
    master: str | None,
    remote: str | None,
    *,
    ingest_first: bool,
    quick: bool = False,
) -> tuple[SparkSession, Lake]:
    """A lake, with what is new in its tables, and the Spark to read it with."""
    from queuecraft.pipeline.lake import Lake

    lake = Lake.at(path.absolute())  # Spark may have been started elsewhere
    if not path.is_dir():
        raise ConfigError(f"there is no lake at {str(path)!r}; is the path right?")
    if not ingest_first and not lake.tables.is_dir():
        raise ConfigError(
            f"the lake at {str(path)!r} has no tables yet; run: queuecraft lake ingest {path}"
        )
    spark = session(master, remote, quick=quick)
    if ingest_first:
        _ingest(spark, lake)
    return spark, lake


def _ingest(spark: SparkSession, lake: Lake) -> None:
    from queuecraft.pipeline.jobs.ingest import Step, ingest

    with progress("taking in what is new") as draw:

        def note(step: Step) -> None:
            draw(step.done, step.total or None)

        try:
            ingest(spark, lake, progress=note)
        except ConfigError:
            raise
        except QueueError as error:
            raise QueueError(
                f"{error.message}; --no-ingest leaves out what is not in the tables yet"
            ) from error


def _figures(spark: SparkSession, lake: Lake, scope: Scope) -> Figures:
    from queuecraft.pipeline.report.reading import read_figures

    with waiting("reading the tables") as tell:
        return read_figures(spark, lake, scope, on_step=lambda what: tell(f"reading {what}"))


def write_whole(path: Path, text: str) -> None:
    """Put a file there, whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _tell(figures: Figures) -> None:
    from queuecraft.pipeline.report.axis import clock
    from queuecraft.pipeline.report.findings import findings
    from queuecraft.pipeline.report.text import listings

    if figures.empty:
        say(f"Nothing to report: {figures.scope}.")
        return
    if figures.first is not None and figures.last is not None:
        say(f"{clock(figures.first)} to {clock(figures.last)} UTC, {figures.scope}", "bold")
    for each in findings(figures):
        say(f"  {each.text}", STYLES[each.level])
    for listing in listings(figures):
        say("")
        say(listing.title, "bold")
        show(listing.columns, listing.rows)
        if listing.more is not None:
            say(f"and {listing.more} more", "dim")
    say("")
