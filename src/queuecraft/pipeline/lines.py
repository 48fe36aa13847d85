"""Lines of the journal as rows, in batches; what cannot be read is a row as well."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa

from queuecraft.observers.journal.row import VERSION, Row
from queuecraft.pipeline.columns import LATEST, Entry, fitting_batch_of

BATCH: Final = 8 << 20  # bytes of lines in one batch, about
_PIECE: Final = 1 << 20  # bytes read at once

_decoder: Final = msgspec.json.Decoder(Row)
_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)


class Piece(NamedTuple):
    """Whole lines of a spool, and what they say."""

    spool: str
    at: float  # when the spool was last written to
    offset: int
    lines: bytes
    entries: list[Entry]  # one for each line that is not blank

    def texts(self) -> Iterator[tuple[int, bytes]]:
        """Where each line that is not blank starts in the spool, and what is on it."""
        start = 0
        while start < len(self.lines):
            end = self.lines.find(b"\n", start) + 1 or len(self.lines)
            if text := self.lines[start:end].strip():
                yield self.offset + start, text
            start = end


class Reading:
    """Spools read one after the other, in bounded memory. Small ones share a batch."""

    def __init__(self) -> None:
        self.unreadable = 0
        self.torn = 0
        self._pieces: list[Piece] = []
        self._size = 0

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
            rows = _decoder.decode_lines(lines)
            if len(rows) != lines.count(b"\n") or not all(map(_is_known, rows)):
                raise ValueError("not a row on every line")
            piece.entries.extend((row, _payload(row)) for row in rows)
        except _UNREADABLE:
            piece.entries[:] = [self._entry(piece, *each) for each in piece.texts()]
        self._pieces.append(piece)
        self._size += len(lines)
        if self._size >= BATCH:
            yield self._batch()

    def _batch(self) -> pa.RecordBatch:
        pieces, self._pieces, self._size = self._pieces, [], 0

        lines: list[tuple[Piece, int, bytes]] = []  # looked for only if one does not fit

        def unfit(number: int, why: str) -> Entry:
            if not lines:
                lines.extend((piece, *each) for piece in pieces for each in piece.texts())
            self.unreadable += 1
            return _unreadable(*lines[number], why)

        return fitting_batch_of([entry for piece in pieces for entry in piece.entries], unfit)

    def _entry(self, piece: Piece, offset: int, text: bytes) -> Entry:
        entry = _read(text)
        if isinstance(entry, str):
            self.unreadable += 1
            return _unreadable(piece, offset, text, entry)
        return entry


def _read(line: bytes) -> Entry | str:
    """A line as a row; or why it is none."""
    try:
        row = _decoder.decode(line)
        if not _is_known(row):
            return f"version {row.version} of the columns; this is version {VERSION}"
        return row, _payload(row)
    except _UNREADABLE as error:
        return str(error)


def _is_known(row: Row) -> bool:
    return 1 <= row.version <= VERSION


def _payload(row: Row) -> bytes | None:
    if row.payload is not None:
        return row.payload.encode()
    if row.payload_base64 is None:
        return None
    return b64decode(row.payload_base64, validate=True)


def _unreadable(piece: Piece, offset: int, line: bytes, why: str) -> Entry:
    """The line itself, under an id that it has again if it is read again."""
    row = Row(
        kind="unreadable",
        at=piece.at,
        message_id=f"{piece.spool}:{offset}",
        error=why,
        size=len(line),
    )
    return row, line
