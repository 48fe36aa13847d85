"""The `queuecraft` command."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from queuecraft import __version__
from queuecraft.cli import (
    asyncapi,
    bench,
    delayed,
    demo,
    dlq,
    doctor,
    health,
    lake,
    messages,
    move,
    outbox,
    pauses,
    publish,
    queues,
    report,
    rewind,
    run,
    serve,
    top,
    topology,
    workers,
)
from queuecraft.cli.command import Command
from queuecraft.cli.exits import Commands
from queuecraft.cli.output import forget_output

app = typer.Typer(
    name="queuecraft",
    cls=Commands,
    help="Typed events over any broker, with the same guarantees on each.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # locals may hold payloads and passwords
)
app.command(cls=Command)(demo.demo)
app.command(cls=Command)(run.run)
app.command(cls=Command)(publish.publish)
app.command(cls=Command)(queues.queues)
app.command(cls=Command)(queues.topology)
app.command(cls=Command)(top.top)
app.command(cls=Command)(messages.peek)
app.command(cls=Command)(topology.declare)
app.command(cls=Command)(topology.bind)
app.command(cls=Command)(topology.unbind)
app.command(cls=Command)(move.move)
app.command(cls=Command)(rewind.rewind)
app.command(cls=Command)(topology.purge)
app.command(cls=Command)(topology.delete)
app.command(cls=Command)(workers.workers)
app.command(cls=Command)(pauses.pause)
app.command(cls=Command)(pauses.resume)
app.add_typer(dlq.app, name="dlq")
app.add_typer(delayed.app, name="delayed")
app.add_typer(outbox.app, name="outbox")
app.add_typer(lake.app, name="lake")
app.command(cls=Command)(report.report)
app.command(cls=Command)(health.health)
app.command(cls=Command)(doctor.doctor)
app.command(cls=Command)(bench.bench)
app.command(cls=Command)(serve.serve)
app.command(cls=Command)(asyncapi.asyncapi)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    debug: Annotated[
        bool,
        typer.Option("--debug", envvar="QUEUECRAFT_DEBUG", help="Show where an error comes from."),
    ] = False,
) -> None:
    """Typed events over any broker, with the same guarantees on each."""


@app.command(cls=Command)
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a name the terminal has no letters for is no error
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    finally:
        # A terminal that was closed must not change how a command ends: Python would exit with 120
        # for the words that nobody can read any more.
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                forget_output(stream)
