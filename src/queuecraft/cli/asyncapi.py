"""`queuecraft asyncapi`: what an application sends and receives, for other teams and tools."""

from __future__ import annotations

import inspect
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from queuecraft.asyncapi import document, to_yaml
from queuecraft.cli.mistakes import mistakes_explained
from queuecraft.cli.processes.application import Reference, loaded
from queuecraft.model.errors import ConfigError
from queuecraft.model.event import Event


class Format(StrEnum):
    """How the document is written."""

    json = "json"
    yaml = "yaml"


def asyncapi(
    application: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:ATTRIBUTE",
            help="A QueueCraft, or a function that returns one, as in shop.app:qc.",
        ),
    ],
    *,
    form: Annotated[
        Format | None,
        typer.Option("--format", help="Default: as FILE is called, else json."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it there.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Default: the name of the module.")] = None,
    version: Annotated[str, typer.Option(help="Of the application.")] = "1.0.0",
) -> None:
    """Write the AsyncAPI 3 document of an application: every event that stands in its module, and
    every handler. Nothing is connected.

    Example: queuecraft asyncapi shop:qc --output asyncapi.yaml
    """
    with mistakes_explained():
        reference = Reference.parse(application)
        qc = loaded(reference)
    module = sys.modules[reference.module]
    events: dict[str, Event[Any]] = {
        each.name: each for each in vars(module).values() if isinstance(each, Event)
    }
    made = document(
        qc,
        events.values(),
        title=title or reference.module,
        version=version,
        description=inspect.getdoc(module),
    )
    is_yaml = output is not None and output.suffix in (".yaml", ".yml")
    if (form or (Format.yaml if is_yaml else Format.json)) is Format.yaml:
        text = to_yaml(made)
    else:
        text = msgspec.json.format(msgspec.json.encode(made), indent=2).decode() + "\n"
    if output is None:
        typer.echo(text, nl=False)
    else:
        try:
            output.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{output} cannot be written: {error.strerror}") from None
