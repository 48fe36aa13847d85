"""How a line of the log looks: JSON for programs, text for people."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from queuecraft.model.printable import printable
from queuecraft.observers.log_context import context_fields

COLOURS: Final = {
    "DEBUG": "2",
    "INFO": "32",
    "WARNING": "33",
    "ERROR": "31",
    "CRITICAL": "1;31",
}


class JsonFormatter(logging.Formatter):
    """One JSON object a line, for programs: time, level, logger, message and every field.

    >>> import logging
    >>> record = logging.LogRecord("queuecraft", 40, "", 0, "attempt 1 failed", None, None)
    >>> record.queuecraft = {"queue": "billing", "attempt": 1}
    >>> line = json.loads(JsonFormatter().format(record))
    >>> line["level"], line["message"], line["queue"], line["attempt"]
    ('error', 'attempt 1 failed', 'billing', 1)
    """

    def __init__(self, *, process: int | None = None) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line."""
        fields = fields_of(record)
        text = record.getMessage()
        line = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": text.split("\n", 1)[0] if "stack" in fields else text,
            **fields,
        }
        if self._process is not None:
            line["process"] = self._process
        if record.exc_info:
            line["stack"] = self.formatException(record.exc_info)
        elif record.exc_text:
            line["stack"] = record.exc_text
        # Printable ASCII alone: nothing in it can steer a terminal.
        return json.dumps(line, default=_said).replace("\x7f", "\\u007f")


class ConsoleFormatter(logging.Formatter):
    """Time, level, text and fields for people; the stack is indented below. What is not printable
    is escaped, so that no text can make a line of its own, or colours.

    >>> record = logging.LogRecord("queuecraft", 30, "", 0, "attempt 1 failed", None, None)
    >>> record.created = 0
    >>> record.queuecraft = {"queue": "billing", "attempt": 1}
    >>> ConsoleFormatter(process=2).format(record)[8:]
    ' WARNING [2] attempt 1 failed  queue=billing attempt=1'
    """

    def __init__(self, *, process: int | None = None, colours: bool = False) -> None:
        super().__init__()
        self._process = "" if process is None else f"[{process}] "
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line, and its stack below."""
        moment = time.strftime("%H:%M:%S", time.localtime(record.created))
        level = f"{record.levelname:<7}"
        head, *rest = record.getMessage().split("\n")
        below = [each.removeprefix("  ") for each in rest]  # a stack that is indented already
        text = printable(head)
        fields = " ".join(_pairs(fields_of(record), text))
        if self._colours:
            moment, fields = _in("2", moment), _in("2", fields)
            level = _in(COLOURS.get(record.levelname, "0"), level)
        line = f"{moment} {level} {self._process}{text}{'  ' * bool(fields)}{fields}"
        if record.exc_info:
            below += self.formatException(record.exc_info).split("\n")
        elif record.exc_text:
            below += record.exc_text.split("\n")
        if record.stack_info:
            below += record.stack_info.split("\n")
        return "".join([line, *(f"\n  {printable(each)}" for each in below)])


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """What is known besides the text; what the line itself says goes before what is around it."""
    found = context_fields()
    own: Mapping[str, Any] | None = getattr(record, "queuecraft", None)
    if own:
        found.update(own)
    return found


def _pairs(fields: Mapping[str, Any], text: str) -> Iterator[str]:
    for name, value in fields.items():
        shown = printable(_said(value))
        twice = name == "error" and shown in text
        twice = twice or (name == "consumer" and value == fields.get("queue"))
        if name != "stack" and not twice:
            yield f"{name}={json.dumps(shown, ensure_ascii=False) if ' ' in shown else shown}"


def _said(value: object) -> str:
    try:
        return str(value)
    except Exception:  # of somebody else's making
        return f"<{type(value).__name__}>"


def _in(colour: str, text: str) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if text else ""
