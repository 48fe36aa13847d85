"""The `queuecraft` command."""

from __future__ import annotations

import typer

from queuecraft import __version__
from queuecraft.cli import demo

app = typer.Typer(
    name="queuecraft",
    help="Typed events over any broker, with the same guarantees on each.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # locals may hold payloads and passwords
)
app.command()(demo.demo)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def main() -> None:
    """Run the command line."""
    app()
