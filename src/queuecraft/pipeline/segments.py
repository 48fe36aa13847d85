"""Segments: the files of a lake that are complete when they are there, and never change."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from queuecraft.failpoints import failpoint
from queuecraft.observers.journal.row import VERSION
from queuecraft.pipeline.arrow import require_arrow
from queuecraft.pipeline.lake import Lake

if TYPE_CHECKING:
    import pyarrow as pa

VERSION_KEY = "queuecraft.version"
"""Of the columns: in the metadata of every file."""

ABANDONED = 86_400.0  # seconds after which nobody is still writing a file


def write_segment(
    lake: Lake, rows: pa.RecordBatch | pa.Table, *, place: Path | None = None
) -> Path:
    """Add rows to a lake; when this returns they are there for good. Where: see `SegmentWriter`.

    >>> from tempfile import TemporaryDirectory
    >>> from queuecraft.model.envelope import Delivery, Outgoing
    >>> from queuecraft.pipeline.archive import archived
    >>> with TemporaryDirectory() as folder:
    ...     rows = archived([Delivery(Outgoing(b"{}", "m-1"), "tap")], at=0.0)
    ...     path = write_segment(Lake.at(folder), rows)
    ...     path.suffix, path.exists()
    ('.parquet', True)
    """
    with SegmentWriter(lake, place or new_place("rows")) as writer:
        writer.write(rows)
    return writer.path


def new_place(source: str, now: float | None = None) -> Path:
    """Where a segment written now goes, within the folder of segments: by its date, under a name
    that no other has and that sorts by time.

    >>> new_place("captured", 1767225600.5).as_posix()
    'date=2026-01-01/20260101T000000.500000Z-captured-....parquet'
    """
    moment = datetime.fromtimestamp(time.time() if now is None else now, UTC)
    name = f"{moment:%Y%m%dT%H%M%S.%fZ}-{source}-{os.urandom(4).hex()}.parquet"
    return Path(f"date={moment:%Y-%m-%d}", name)


class SegmentWriter:
    """One segment, batch by batch. It appears under its name when the block ends well, all of it
    on the disk; until then, and if it does not, there is nothing to be seen.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with SegmentWriter(Lake.at(folder), new_place("rows")) as writer:
    ...         pass
    ...     writer.path.exists()  # without rows, no file
    False
    """

    def __init__(self, lake: Lake, place: Path) -> None:
        require_arrow()
        self.path = lake.segments / place
        self.rows = 0
        self._hidden = self.path.with_name(f".{self.path.name}")
        self._writer: Any = None

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Add rows, after those before: they are one row group."""
        if not rows.num_rows:
            return
        if self._writer is None:
            self._writer = self._open()
        self._writer.write(rows)
        self.rows += rows.num_rows

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._writer is None:
            return
        try:
            if error is None:
                self._writer.close()
                self._publish()
            else:
                with suppress(OSError):  # what went wrong first is what is to be told
                    self._writer.close()
        finally:
            with suppress(FileNotFoundError):
                self._hidden.unlink()

    def _open(self) -> Any:
        from pyarrow.parquet import ParquetWriter

        from queuecraft.pipeline.schemas import SEGMENTS

        make_folder(self.path.parent)
        schema = SEGMENTS.arrow.with_metadata({VERSION_KEY: str(VERSION)})
        return ParquetWriter(str(self._hidden), schema, compression="zstd")

    def _publish(self) -> None:
        sync(self._hidden)
        failpoint("segment.before_rename")
        self._hidden.rename(self.path)
        failpoint("segment.after_rename")
        sync(self.path.parent)


def sweep(lake: Lake) -> None:
    """Remove what writers that died have left unfinished a day ago or longer."""
    oldest = time.time() - ABANDONED
    for path in lake.segments.glob("date=*/.*.parquet"):
        with suppress(FileNotFoundError):
            if path.stat().st_mtime < oldest:
                path.unlink()


def make_folder(folder: Path) -> None:
    """Make a folder, and those it is in, so that a power cut does not undo it."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def sync(path: Path) -> None:
    """Have all of a file, or the names in a folder, written to the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
