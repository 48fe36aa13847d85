"""The segments of a lake as a table: plain Parquet, a task for some megabytes of files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from queuecraft.model.errors import ConfigError, QueueError
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.schemas import SEGMENTS
from queuecraft.pipeline.source.filters import expression

SHARE = 32 * 1024 * 1024  # bytes of files for one task
OPENING = 128 * 1024  # bytes that could be read while a file is opened
BATCH = 16_384  # rows handed to Spark at once


@dataclass(frozen=True, slots=True)
class Piece:
    """A file, or some row groups of one that is too large for a task."""

    path: str
    size: int
    groups: tuple[int, ...] | None = None


class Pieces(InputPartition):
    """What one task reads."""

    def __init__(self, pieces: tuple[Piece, ...]) -> None:
        super().__init__(pieces)


class LakeReader(DataSourceReader):
    """Reads every segment of a lake, or only some columns of them."""

    def __init__(self, root: str, columns: tuple[str, ...]) -> None:
        self.root = root
        self.columns = columns
        self.filters: list[Filter] = []

    def partitions(self) -> list[InputPartition]:
        system, folder = _segments(self.root)
        found: list[InputPartition] = []
        share: list[Piece] = []
        size = 0
        for piece in _pieces(system, folder):
            cost = piece.size + OPENING
            if share and size + cost > SHARE:
                found.append(Pieces(tuple(share)))
                share, size = [], 0
            share.append(piece)
            size += cost
        return [*found, Pieces(tuple(share))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        system, _ = _segments(self.root)
        for piece in partition.value:
            yield from self._read(system, piece)

    def _read(self, system: fs.FileSystem, piece: Piece) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([SEGMENTS.arrow.field(name) for name in self.columns])
        fragments: Any = ds.ParquetFileFormat()
        try:
            fragment = fragments.make_fragment(piece.path, system, row_groups=piece.groups)
            batches = fragment.to_batches(
                schema=SEGMENTS.arrow,
                columns=list(self.columns),
                filter=expression(self.filters, SEGMENTS.arrow),
                batch_size=BATCH,
                use_threads=False,  # as many tasks run as there are cores
            )
            for batch in batches:
                if batch.num_rows:
                    yield batch.select(list(self.columns)).cast(schema)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _torn(piece.path, error) from None


class FilteringLakeReader(LakeReader):
    """The same, where Spark hands over its filters: a reader that has this method is refused
    where it does not."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take note of them; all stay Spark's, which may know more of equality than Arrow."""
        self.filters = list(filters)
        return filters


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns that a user has asked for, if a lake has them; by default all.

    >>> columns_of(StructType().add("kind", "string").add("att", "timestamp"))
    Traceback (most recent call last):
    queuecraft.ConfigError: there is no column 'att timestamp'; known: kind string, ...
    """
    known = {field.name: field.dataType for field in SEGMENTS.spark.fields}
    for field in schema.fields:
        if known.get(field.name) != field.dataType:
            names = ", ".join(f"{name} {kind.simpleString()}" for name, kind in known.items())
            asked = f"{field.name} {field.dataType.simpleString()}"
            raise ConfigError(f"there is no column {asked!r}; known: {names}")
    return tuple(schema.names)


def _segments(root: str) -> tuple[fs.FileSystem, str]:
    """The file system of a lake, and its folder of segments there."""
    try:
        if "://" in root:
            system, path = fs.FileSystem.from_uri(root)
            return system, f"{path.rstrip('/')}/{Lake.at('').segments.name}"
        return fs.LocalFileSystem(), str(Lake.at(root).segments.absolute())
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ConfigError(f"lake={root!r} cannot be opened: {error}") from None


def _pieces(system: fs.FileSystem, folder: str) -> Iterator[Piece]:
    where = fs.FileSelector(folder, recursive=True, allow_not_found=True)
    found = sorted(system.get_file_info(where), key=lambda info: info.path)
    if not found and system.get_file_info(folder.rpartition("/")[0]).type != fs.FileType.Directory:
        raise ConfigError(f"there is no lake in {folder.rpartition('/')[0]}; is the path right?")
    for info in found:
        hidden = info.base_name.startswith((".", "_"))
        if info.type == fs.FileType.File and info.extension == "parquet" and not hidden:
            yield from _divided(system, Piece(info.path, info.size or 0))


def _divided(system: fs.FileSystem, piece: Piece) -> Iterator[Piece]:
    """A file in parts, if it is more than two tasks should have to read."""
    if piece.size <= 2 * SHARE:
        yield piece
        return
    fragments: Any = ds.ParquetFileFormat()
    try:
        groups = fragments.make_fragment(piece.path, system).row_groups
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _torn(piece.path, error) from None
    each = piece.size // max(1, len(groups))
    for group in groups:
        yield Piece(piece.path, each, (group.id,))


def _torn(path: str, error: Exception) -> QueueError:
    reason = str(error).partition("\n")[0]
    return QueueError(
        f"segment {path} cannot be read: {reason}; restore it, or take it out of the lake"
    )
