"""Rows as lines of JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from queuecraft.observers.journal.line import Each, Line


class Note(NamedTuple):
    """What is to become so many rows."""

    rows: int
    make: Callable[[], Sequence[Line]]


class Lines(NamedTuple):
    """So many rows, encoded; and why others are not among them.

    >>> lines = Lines.of([Note(1, lambda: [Line("published", 1.5, "m-1")])])
    >>> lines.rows, lines.data
    (1, b'{"kind":"published","at":1.5,"message_id":"m-1"}\\n')
    """

    rows: int
    data: bytes
    lost: int = 0
    error: Exception | None = None

    @classmethod
    def of(cls, notes: Sequence[Note]) -> Lines:
        """The lines of all rows that can be made and encoded."""
        try:
            if len(notes) == 1:
                lines = notes[0].make()
            else:
                lines = [line for note in notes for line in note.make()]
            return cls(sum([note.rows for note in notes]), _encode_lines(lines))
        except Exception:  # a text that is no Unicode, most likely: the others are as good as ever
            return _one_by_one(notes)


_encode_lines = msgspec.json.Encoder().encode_lines


def _one_by_one(notes: Sequence[Note]) -> Lines:
    good: list[bytes] = []
    rows, lost, reason = 0, 0, None
    for note in notes:
        try:
            lines = note.make()
        except Exception as error:
            lost, reason = lost + note.rows, error
            continue
        for line in lines:
            try:
                good.append(_encode_lines([_mended(line)]))
                rows += line.count
            except Exception as error:
                lost, reason = lost + line.count, error
    return Lines(rows, b"".join(good), lost, reason)


def _mended(line: Line) -> Line:
    """The same line, with all that is no Unicode replaced."""
    texts = {name: _text(value) for name, value in msgspec.structs.asdict(line).items()}
    return msgspec.structs.replace(line, **texts)


def _text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_text(name): _text(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_text(each) for each in value]
    if isinstance(value, Each):
        texts = {name: _text(each) for name, each in msgspec.structs.asdict(value).items()}
        return msgspec.structs.replace(value, **texts)
    return value
