"""Segments that cannot be read: found before they stop a job, put aside, and told of."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from queuecraft.failpoints import failpoint
from queuecraft.observers.journal.row import Row
from queuecraft.pipeline.columns import batch_of
from queuecraft.pipeline.jobs.errors import NotNow
from queuecraft.pipeline.schemas import SEGMENTS
from queuecraft.pipeline.segments import sync
from queuecraft.pipeline.transforms.problem import TORN


@dataclass(frozen=True, slots=True)
class Inspected:
    """What was found in segments."""

    rows: int
    torn: Sequence[Path]


def put_torn_aside(segments: Iterable[Path], *, thoroughly: bool = False) -> Inspected:
    """Look at the footers of segments, or thoroughly at every row. In place of one that cannot be
    read stands from then on a segment with one row that says so; the file itself is kept beside
    it, as `.NAME.torn`.

    Raises `NotNow` if the machine cannot read one, which says nothing about the file.
    """
    rows = 0
    torn: list[Path] = []

    def look(segment: Path) -> tuple[Path, int, str | None]:
        try:
            return (segment, _rows(segment, thoroughly), None)
        except FileNotFoundError:
            return (segment, 0, None)
        except (pa.ArrowException, OSError, ValueError) as error:
            if _of_the_machine(error):
                raise NotNow(
                    f"{segment} cannot be read now: {error}. It stays as it is: mend that and "
                    "ingest again, or move the file out of the lake to go on without it"
                ) from error
            return (segment, 0, str(error) or type(error).__name__)

    with ThreadPoolExecutor(max_workers=4) as threads:
        for segment, count, wrong in threads.map(look, segments):
            rows += count
            if wrong is not None:
                _put_aside(segment, wrong)
                torn.append(segment)
                rows += 1
    return Inspected(rows, torn)


def _rows(segment: Path, thoroughly: bool) -> int:
    with pq.ParquetFile(segment) as file:
        schema: pa.Schema = file.schema_arrow
        for column in SEGMENTS.arrow:
            if column.name in schema.names and not schema.field(column.name).type.equals(
                column.type
            ):
                kind = schema.field(column.name).type
                raise ValueError(f"the column {column.name} is {kind}, not {column.type}")
        if thoroughly:
            return sum(batch.num_rows for batch in file.iter_batches())
        return int(file.metadata.num_rows)


def _of_the_machine(error: Exception) -> bool:
    """Whether it is for want of memory, or the system says no: Arrow gives no error number for what
    is wrong in a file."""
    if isinstance(error, OSError):
        return error.errno is not None
    return isinstance(error, MemoryError)


def _put_aside(segment: Path, wrong: str) -> None:
    row = Row(
        kind="unreadable",
        at=segment.stat().st_mtime,
        reason=TORN,
        error=f"{segment.name}: {wrong}"[:1000],
        size=segment.stat().st_size,
    )
    instead = segment.with_name(f".{segment.name}.instead")
    pq.write_table(pa.Table.from_batches([batch_of([(row, None)])]), instead, compression="zstd")
    sync(instead)
    with suppress(FileExistsError):
        os.link(segment, segment.with_name(f".{segment.name}.torn"))
    failpoint("torn.before_swap")
    instead.replace(segment)
    sync(segment.parent)
