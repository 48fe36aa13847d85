"""What a journal has written, read back."""

from __future__ import annotations

from pathlib import Path

import msgspec

from queuecraft.observers.journal import Line, Row

_decoder = msgspec.json.Decoder(Line)


def files(lake: Path, ending: str = ".jsonl") -> list[Path]:
    """The files of the spool with this ending, oldest first."""
    return sorted((lake / "spool").glob(f"*{ending}"))


def rows(lake: Path) -> list[Row]:
    """Every row that is ready to be read, in order; nothing else may be in the spool."""
    found = files(lake)
    assert found == files(lake, ""), "something is left over"
    return [row for file in found for row in read(file.read_bytes())]


def read(data: bytes) -> list[Row]:
    """The rows on all lines."""
    return [row for line in _decoder.decode_lines(data) for row in line.rows()]


def untouched(folder: Path) -> bool:
    """Whether nothing was made there."""
    return not any(folder.glob("*"))


def told(row: Row) -> dict[str, object]:
    """What a row tells."""
    builtins: dict[str, object] = msgspec.to_builtins(row)
    return builtins
