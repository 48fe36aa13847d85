"""Bringing the tables of a lake up to date."""

from __future__ import annotations

import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from queuecraft.cli.cluster import Master, Remote, session
from queuecraft.cli.duration import seconds
from queuecraft.cli.exits import sentence
from queuecraft.cli.output import AsJson, note, say, say_json
from queuecraft.cli.progress import progress
from queuecraft.model.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from queuecraft.pipeline.jobs.ingest import Ingested
    from queuecraft.pipeline.lake import Lake


def ingest(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The folder of the lake.")],
    *,
    once: Annotated[bool, typer.Option("--once", help="End when nothing is new.")] = False,
    every: Annotated[
        float,
        typer.Option(parser=seconds, metavar="TIME", help="How often to look for what is new."),
    ] = 60.0,
    master: Master = None,
    remote: Remote = None,
    as_json: AsJson = False,
) -> None:
    """Bring the tables of a lake up to date with what the journal and captures have written. Goes
    on until Ctrl-C, also when another job keeps it waiting, or ends with --once. It may be killed
    at any time: the next one goes on.

    Example: queuecraft lake ingest ./lake --once
    """
    from queuecraft.pipeline.jobs.errors import NotNow
    from queuecraft.pipeline.lake import Lake

    if not path.is_dir():
        raise ConfigError(f"there is no lake at {str(path)!r}; is the path right?")
    spark, lake = session(master, remote), Lake.at(path.absolute())
    told: str | None = None
    while True:
        try:
            done = _ingest(spark, lake)
        except NotNow as error:
            if once:
                raise
            if (text := sentence(error)) != told:  # it may last for many rounds
                note(f"{text}; trying again every {every:g} s", as_json=as_json)
            told = text
        else:
            told = None
            if once or done.segments or as_json:
                _tell(done, path, as_json=as_json)
        if once:
            return
        sys.stdout.flush()
        try:
            threading.Event().wait(every)
        except KeyboardInterrupt:
            return  # between two rounds there is nothing to interrupt


def _ingest(spark: SparkSession, lake: Lake) -> Ingested:
    from queuecraft.pipeline.jobs.ingest import Step
    from queuecraft.pipeline.jobs.ingest import ingest as work

    with progress("ingest") as draw:

        def show(step: Step) -> None:
            draw(step.done, step.total or None)

        return work(spark, lake, progress=show)


def _tell(done: Ingested, path: Path, *, as_json: bool) -> None:
    if as_json:
        say_json(asdict(done))
        return
    if not done.segments and not done.hours:
        say(f"Nothing is new in {path}.")
        return
    say(
        f"Ingested {_count(done.rows, 'row')} from {_count(done.segments, 'segment')} of {path} in "
        f"{done.seconds:.1f} s."
    )
    if done.quarantined:
        torn = (
            f", among them {_count(done.torn, 'segment')} that cannot be read" if done.torn else ""
        )
        say(f"In quarantine: {_count(done.quarantined, 'row')}{torn}.", "yellow")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
