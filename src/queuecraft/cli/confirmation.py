"""A question before what cannot be undone."""

from __future__ import annotations

import sys
from typing import Annotated, TypeAlias

import typer

from queuecraft.model.errors import ConfigError
from queuecraft.observers.log import printable

Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirm(deed: str, *, yes: bool) -> None:
    """Ask whether the deed is to be done; ends the command if not. Where nobody can answer, it
    takes `--yes`."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"nobody is there to confirm: {deed}; say --yes if that is meant")
    question = f"{deed[:1].upper()}{deed[1:]}?"
    if not typer.confirm(printable(question), err=True):
        typer.echo("Nothing was changed.", err=True)
        raise typer.Exit(1)
