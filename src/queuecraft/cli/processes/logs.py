"""The log of a running worker: lines for people, or JSON for programs."""

from __future__ import annotations

import logging
import time
from enum import StrEnum

from rich.console import Console

from queuecraft.observers.log import JsonFormatter


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


COLOURS = {"DEBUG": "2", "INFO": "32", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}


class ConsoleFormatter(logging.Formatter):
    """Time, level, process and text.

    >>> record = logging.LogRecord("queuecraft", 30, "", 0, "attempt 1 failed", None, None)
    >>> record.created = 0
    >>> ConsoleFormatter(process=2).format(record)[8:]
    ' WARNING [2] attempt 1 failed'
    """

    def __init__(self, *, process: int | None = None, colours: bool = False) -> None:
        super().__init__()
        self._process = "" if process is None else f"[{process}] "
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line, and its stack below."""
        moment = time.strftime("%H:%M:%S", time.localtime(record.created))
        level = f"{record.levelname:<7}"
        if self._colours:
            moment = f"\x1b[2m{moment}\x1b[0m"
            level = f"\x1b[{COLOURS.get(record.levelname, '0')}m{level}\x1b[0m"
        line = f"{moment} {level} {self._process}{record.getMessage()}"
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return line


class _ProcessJsonFormatter(JsonFormatter):
    """The same lines, with the number of the process in each."""

    def __init__(self, process: int | None) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        if self._process is not None:
            fields = getattr(record, "queuecraft", {})
            record = logging.makeLogRecord(
                {**record.__dict__, "queuecraft": {**fields, "process": self._process}}
            )
        return super().format(record)


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
        return _ProcessJsonFormatter(process)
    console = Console(stderr=True)
    colours = console.is_terminal and console.color_system is not None and not console.no_color
    return ConsoleFormatter(process=process, colours=colours)
