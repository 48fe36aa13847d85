"""Rows as lines of JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from queuecraft.observers.journal.rows import Line


class Note(NamedTuple):
    """What is to become so many rows."""

    rows: int
    make: Callable[[], Sequence[Line]]


class Lines(NamedTuple):
    """So many rows, encoded; and why others are not among them.

    >>> from queuecraft.observers.journal.row import Row
    >>> lines = Lines.of([Note(1, lambda: [Row("published", 1.5, "m-1")])])
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
                rows = notes[0].make()
            else:
                rows = [row for note in notes for row in note.make()]
            return cls(len(rows), _encode_lines(rows))
        except Exception:  # a text that is no Unicode, most likely: the others are as good as ever
            return _one_by_one(notes)


_encode_lines = msgspec.json.Encoder().encode_lines


def _one_by_one(notes: Sequence[Note]) -> Lines:
    good: list[bytes] = []
    lost, reason = 0, None
    for note in notes:
        try:
            rows = note.make()
        except Exception as error:
            lost, reason = lost + note.rows, error
            continue
        for row in rows:
            try:
                good.append(_encode_lines([_mended(row)]))
            except Exception as error:
                lost, reason = lost + 1, error
    return Lines(len(good), b"".join(good), lost, reason)


def _mended(row: Line) -> Line:
    """The same row, with all that is no Unicode replaced."""
    texts = {name: _text(value) for name, value in msgspec.structs.asdict(row).items()}
    return msgspec.structs.replace(row, **texts)


def _text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_text(name): _text(each) for name, each in value.items()}
    return value
