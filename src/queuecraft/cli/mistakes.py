"""What a command says when the application it was given cannot be used."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager

import typer

from queuecraft.cli.exits import ExitCode
from queuecraft.cli.output import complain
from queuecraft.cli.processes.application import ApplicationError


@contextmanager
def mistakes_explained() -> Generator[None]:
    """End the command with what is wrong, and where in the application's own code."""
    try:
        yield
    except ApplicationError as error:
        if error.story:
            print(error.story, file=sys.stderr)
        complain(error.message)
        raise typer.Exit(ExitCode.USAGE) from None
