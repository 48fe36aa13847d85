"""What a command prints: tables for a person, plain lines for a pipe, JSON for a program."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, TextIO, TypeAlias

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from queuecraft.observers.log import printable

AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

Cell: TypeAlias = str | int | float | datetime | None


def on_terminal(stream: TextIO | None = None) -> bool:
    """Whether a person sees it, on a terminal that can draw."""
    seen = sys.stdout if stream is None else stream
    return seen.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def say(text: str, style: str = "") -> None:
    """A line on standard output, whatever is in it made harmless."""
    if on_terminal():
        Console(highlight=False).print(Text(printable(text), style), soft_wrap=True)
    else:
        print(printable(text))


def complain(text: str, *, label: str = "error") -> None:
    """A line on standard error, red where colours are seen."""
    console = Console(stderr=True, highlight=False)
    for number, line in enumerate(text.split("\n")):
        start = Text("" if number else f"{label}: ", "bold red")
        console.print(start + Text(printable(line), "red"), soft_wrap=True)


def note(text: str, *, as_json: bool = False) -> None:
    """Something worth knowing that is no error, on standard error."""
    if as_json:
        complain_json(note=text)
    else:
        console = Console(stderr=True, highlight=False)
        console.print(Text(f"note: {printable(text)}", "yellow"), soft_wrap=True)


def say_json(value: object) -> None:
    """A JSON document on a line of its own; nothing in it can steer a terminal."""
    print(as_json(value))


def complain_json(**fields: object) -> None:
    """An error as a JSON document on standard error."""
    print(as_json(fields), file=sys.stderr)


def as_json(value: object) -> str:
    """A value in one line of printable ASCII.

    >>> as_json({"id": "\\x1b[31m", "at": datetime(2030, 1, 1, tzinfo=UTC)})
    '{"id": "\\\\u001b[31m", "at": "2030-01-01T00:00:00Z"}'
    """
    return json.dumps(value, default=_plain).replace("\x7f", "\\u007f")


def show(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """A table on a terminal; elsewhere a line for each row, its cells set apart by tabs."""
    if on_terminal():
        Console().print(table(columns, rows))
    else:
        print("\t".join(columns))
        show_rows(rows)


def show_rows(rows: Iterable[Sequence[Cell]]) -> None:
    """Lines for a program, without a header."""
    for row in rows:
        print("\t".join(printable(_bare(cell)) for cell in row))


def show_lines(
    columns: Sequence[str], rows: Iterable[Sequence[Cell]], widest: Mapping[str, int]
) -> None:
    """A table of one line for each row: a column is at most so wide, the last has what is left."""
    drawn = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    rows = list(rows)
    for at, name in enumerate(columns):
        last = at == len(columns) - 1
        numeric = not last and any(isinstance(row[at], int | float) for row in rows)
        drawn.add_column(
            name,
            justify="right" if numeric else "left",
            no_wrap=True,
            overflow="ellipsis",
            max_width=widest.get(name),
            ratio=1 if last else None,
        )
    for row in rows:
        drawn.add_row(*(_drawn(cell) for cell in row))
    Console().print(drawn)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, one_line: bool = False
) -> Table:
    """A table to be drawn; long cells are folded, never cut, unless a row is to be one line."""
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    rows = list(rows)
    for at, name in enumerate(columns):
        numeric = any(isinstance(row[at], int | float) for row in rows)
        drawn.add_column(
            name,
            justify="right" if numeric else "left",
            overflow="ellipsis" if one_line else "fold",
            no_wrap=one_line and at > 0,  # the first gives way when there is not enough room
            min_width=8 if one_line and at == 0 else None,
        )
    for row in rows:
        cells = [_drawn(cell) for cell in row]
        cells[0].no_wrap = one_line
        drawn.add_row(*cells)
    return drawn


def flush_output() -> None:
    """Hand over what is printed; a reader that has gone away is no error."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        forget_output()


def forget_output(stream: TextIO | None = None) -> None:
    """Let nothing try to write to what is closed again, not even at the end of the process: to
    standard output, or to another stream."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, (stream or sys.stdout).fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass  # it is no real file


def stamp(moment: datetime) -> str:
    """A moment in UTC, to the second.

    >>> stamp(datetime(2030, 1, 1, 12, 30, tzinfo=UTC))
    '2030-01-01T12:30:00Z'
    """
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _drawn(cell: Cell) -> Text:
    match cell:
        case None:
            return Text("–", "dim")
        case int():
            return Text(f"{cell:,}")
        case _:
            return Text(printable(_bare(cell)))


def _bare(cell: Cell) -> str:
    match cell:
        case None:
            return ""
        case datetime():
            return stamp(cell)
        case float():
            return f"{cell:.1f}"
        case _:
            return str(cell)


def _plain(value: Any) -> object:
    if isinstance(value, datetime):
        return stamp(value)
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    return str(value)
