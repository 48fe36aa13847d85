"""The `queuecraft` command."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from queuecraft import __version__
from queuecraft.cli import (
    demo,
    dlq,
    health,
    messages,
    move,
    publish,
    queues,
    run,
    topology,
)
from queuecraft.cli.exits import Commands

app = typer.Typer(
    name="queuecraft",
    cls=Commands,
    help="Typed events over any broker, with the same guarantees on each.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # locals may hold payloads and passwords
)
app.command()(demo.demo)
app.command()(run.run)
app.command()(publish.publish)
app.command()(queues.queues)
app.command()(queues.topology)
app.command()(messages.peek)
app.command()(topology.declare)
app.command()(topology.bind)
app.command()(topology.unbind)
app.command()(move.move)
app.command()(topology.purge)
app.command()(topology.delete)
app.add_typer(dlq.app, name="dlq")
app.command()(health.health)


@app.callback()
def options(
    *,
    debug: Annotated[
        bool,
        typer.Option("--debug", envvar="QUEUECRAFT_DEBUG", help="Show where an error comes from."),
    ] = False,
) -> None:
    """Typed events over any broker, with the same guarantees on each."""


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a name the terminal has no letters for is no error
            stream.reconfigure(errors="backslashreplace")
    app()
