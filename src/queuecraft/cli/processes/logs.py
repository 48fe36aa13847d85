"""The log of a running worker: lines for people, or JSON for programs."""

from __future__ import annotations

import logging
from enum import StrEnum

from rich.console import Console

from queuecraft.observers.log import ConsoleFormatter, JsonFormatter


class LogFormat(StrEnum):
    """How a line of the log looks."""

    console = "console"
    json = "json"


class LogLevel(StrEnum):
    """What is worth a line."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


def write_log(
    form: LogFormat | None, level: LogLevel | None, *, process: int | None = None
) -> None:
    """Write the log to stderr. What the application has set up by itself stays as it is, unless
    a form or a level is asked for."""
    root = logging.getLogger()
    if form is not None or not root.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(_formatter(form, process))
        root.handlers[:] = [handler]
        level = level or LogLevel.info
    if level is not None:
        root.setLevel(level.value.upper())


def _formatter(form: LogFormat | None, process: int | None) -> logging.Formatter:
    if form is LogFormat.json:
        return JsonFormatter(process=process)
    console = Console(stderr=True)
    colours = console.is_terminal and console.color_system is not None and not console.no_color
    return ConsoleFormatter(process=process, colours=colours)
