"""Lines of the journal as rows, in batches; what cannot be read is a row as well."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa

from queuecraft.observers.journal.line import Line
from queuecraft.observers.journal.row import VERSION, Row
from queuecraft.pipeline.columns import LATEST, Entry, fitting_batch_of

BATCH: Final = 8 << 20  # bytes of lines in one batch, about
MOST: Final = 1 << 15  # rows in one batch, about
_PIECE: Final = 1 << 20  # bytes read at once

_decoder: Final = msgspec.json.Decoder(Line)
_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)


class Piece(NamedTuple):
    """Whole lines of a spool, and what they say."""

    spool: str
    at: float  # when the spool was last written to
    offset: int
    lines: bytes
    entries: list[Entry]  # of all lines that are not blank

    def texts(self) -> Iterator[tuple[int, bytes]]:
        """Where each line that is not blank starts in the spool, and what is on it."""
        start = 0
        while start < len(self.lines):
            end = self.lines.find(b"\n", start) + 1 or len(self.lines)
            if text := self.lines[start:end].strip():
                yield self.offset + start, text
            start = end


class Origin(NamedTuple):
    """What one entry was made of: a line, or one row of a line of many."""

    piece: Piece
    place: str
    text: bytes


class Reading:
    """Spools read one after the other, in bounded memory. Small ones share a batch."""

    def __init__(self) -> None:
        self.unreadable = 0
        self.torn = 0
        self._pieces: list[Piece] = []
        self._size = 0
        self._rows = 0

    def of(self, path: Path, *, torn: bool) -> Iterator[pa.RecordBatch]:
        """What a spool adds, whenever there is enough for a batch. With `torn`, a last line that
        is cut off is what its writer died at, and only counted. No spool, no rows."""
        try:
            file = path.open("rb", buffering=0)
        except FileNotFoundError:
            return
        with file:
            at = min(max(path.stat().st_mtime, 0), LATEST)
            offset = 0
            begun = bytearray()  # a line that goes on in the next piece
            while data := file.read(_PIECE):
                end = data.rfind(b"\n") + 1
                if not end:
                    begun += data
                    continue
                lines = bytes(begun) + data[:end]
                begun[:] = data[end:]
                yield from self._add(path.name, at, offset, lines)
                offset += len(lines)
            if begun:
                last = bytes(begun)
                if torn and isinstance(_read(last), str):
                    self.torn += 1
                else:
                    yield from self._add(path.name, at, offset, last)

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What has not been given yet."""
        if self._pieces:
            yield self._batch()

    def _add(self, spool: str, at: float, offset: int, lines: bytes) -> Iterator[pa.RecordBatch]:
        piece = Piece(spool, at, offset, lines, [])
        try:
            found = _decoder.decode_lines(lines)
            if len(found) != lines.count(b"\n") or not all(map(_is_known, found)):
                raise ValueError("not a row on every line")
            piece.entries.extend([entry for line in found for entry in _entries(line)])
        except _UNREADABLE:
            piece.entries[:] = [
                entry for each in piece.texts() for entry in self._entries(piece, *each)
            ]
        self._pieces.append(piece)
        self._size += len(lines)
        self._rows += len(piece.entries)
        if self._size >= BATCH or self._rows >= MOST:
            yield self._batch()

    def _batch(self) -> pa.RecordBatch:
        pieces, self._pieces, self._size, self._rows = self._pieces, [], 0, 0
        origins: list[Origin] = []  # looked for only if an entry does not fit

        def unfit(number: int, why: str) -> Entry:
            if not origins:
                origins.extend(origin for piece in pieces for origin in _origins(piece))
            self.unreadable += 1
            return _unreadable(origins[number], why)

        return fitting_batch_of([entry for piece in pieces for entry in piece.entries], unfit)

    def _entries(self, piece: Piece, offset: int, text: bytes) -> Sequence[Entry]:
        found = _read(text)
        if isinstance(found, str):
            self.unreadable += 1
            return [_unreadable(Origin(piece, str(offset), text), found)]
        return found


def _read(line: bytes) -> Sequence[Entry] | str:
    """A line as rows; or why it has none."""
    try:
        row = _decoder.decode(line)
        if not _is_known(row):
            return f"version {row.version} of the columns; this is version {VERSION}"
        return _entries(row)
    except _UNREADABLE as error:
        return str(error)


def _entries(line: Line) -> Sequence[Entry]:
    if line.each is None:
        return ((line, _payload(line)),)
    return [(row, _payload(row)) for row in line.rows()]


def _origins(piece: Piece) -> Iterator[Origin]:
    """Where each entry of a piece is from."""
    for offset, text in piece.texts():
        found = _read(text)
        if isinstance(found, str) or len(found) == 1:
            yield Origin(piece, str(offset), text)
        else:
            for number, (row, _) in enumerate(found):
                yield Origin(piece, f"{offset}:{number}", msgspec.json.encode(row))


def _is_known(row: Row) -> bool:
    return 1 <= row.version <= VERSION


def _payload(row: Row) -> bytes | None:
    if row.payload is not None:
        return row.payload.encode()
    if row.payload_base64 is None:
        return None
    return b64decode(row.payload_base64, validate=True)


def _unreadable(origin: Origin, why: str) -> Entry:
    """What is there itself, under an id that it has again if it is read again."""
    row = Row(
        kind="unreadable",
        at=origin.piece.at,
        message_id=f"{origin.piece.spool}:{origin.place}",
        error=why,
        size=len(origin.text),
    )
    return row, origin.text
