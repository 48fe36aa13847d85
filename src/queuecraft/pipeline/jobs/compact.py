"""Many small files into few, where every stream is done with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from queuecraft.failpoints import failpoint
from queuecraft.observers.journal.row import VERSION
from queuecraft.pipeline.jobs.alone import alone
from queuecraft.pipeline.jobs.hours import Hour, Hours, folder_of, in_groups
from queuecraft.pipeline.jobs.passed import last_batch, passed_segments
from queuecraft.pipeline.jobs.stream import COMPACTED, checkpoint
from queuecraft.pipeline.jobs.swap import staging, swap
from queuecraft.pipeline.jobs.tables import hours_of, parquet_files, prepare, schema_by_hours
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.schemas import MESSAGES, SEGMENTS
from queuecraft.pipeline.segments import VERSION_KEY, new_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL: Final = 32 << 20  # bytes; what is larger is left as it is
LARGE: Final = 128 << 20  # bytes of what is made, about
FEWEST: Final = 4  # small files that are worth it
GROUP: Final = 100_000  # rows in a row group
TOGETHER: Final = 1_000_000  # rows of bronze at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """How many files there were, and how many have taken their place.

    >>> Compacted(segments=1000, segments_after=2, tables=48, tables_after=24).segments_after
    2
    """

    segments: int = 0
    segments_after: int = 0
    tables: int = 0
    tables_after: int = 0


def compact(
    spark: SparkSession,
    lake: Lake,
    *,
    fewest: int = FEWEST,
    progress: Callable[[str], object] | None = None,
) -> Compacted:
    """Put small segments of a date together, and small files of an hour in bronze, where there are
    so many of them. Segments that a stream with a checkpoint in the lake has not passed are left
    alone, and so is what is not ingested. Killed at any time, it loses nothing; the next job of
    any kind finishes what was begun."""
    tell = progress or (lambda what: None)
    with alone(lake) as lake:
        prepare(spark)
        before = after = 0
        for files in _small_segments(lake, fewest):
            tell(files[0].parent.name)
            before += len(files)
            after += _join(lake, files)
        rows_before = rows_after = 0
        known = Hours(lake).all()
        for hours in in_groups(_scattered(lake, fewest), known, TOGETHER):
            tell(f"messages of {hours[0]}")
            removed, made = _gather(spark, lake, hours)
            rows_before += removed
            rows_after += made
        return Compacted(
            segments=before, segments_after=after, tables=rows_before, tables_after=rows_after
        )


# -- segments: without Spark, row for row as they are ----------------------------------------------


def _small_segments(lake: Lake, fewest: int) -> Iterator[list[Path]]:
    """Segments of one date that belong together, as many as make one file."""
    passed = passed_segments(lake)
    for date in sorted(lake.segments.glob("date=*")):
        group: list[Path] = []
        size = 0
        for path in sorted(date.glob("*.parquet")):
            done = path.name in passed or path.name.startswith(COMPACTED)
            if path.name.startswith(".") or not done or path.stat().st_size >= SMALL:
                continue
            if size >= LARGE:
                yield group
                group, size = [], 0
            group.append(path)
            size += path.stat().st_size
        if len(group) >= fewest:
            yield group


def _join(lake: Lake, files: Sequence[Path]) -> int:
    place = files[0].with_name(f"{COMPACTED}{new_place('compacted').name}")
    waiting = staging(lake) / place.name
    waiting.parent.mkdir(exist_ok=True)
    schema = SEGMENTS.arrow.with_metadata({VERSION_KEY: str(VERSION)})
    with pq.ParquetWriter(waiting, schema, compression="zstd") as writer:
        for table in _groups(files, SEGMENTS.arrow):
            writer.write_table(table.cast(schema))
    failpoint("compact.before_segment")
    swap(lake, [(waiting, place)], files)
    return 1


def _groups(files: Iterable[Path], schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of files in order, in groups of a good size."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for path in files:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=GROUP):
                waiting.append(_fitted(batch, schema))
                rows += batch.num_rows
                if rows >= GROUP:
                    yield pa.Table.from_batches(waiting, schema)
                    waiting, rows = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting, schema)


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """An older version has fewer columns."""
    columns = [
        batch.column(column.name)
        if column.name in batch.schema.names
        else pa.nulls(batch.num_rows, column.type)
        for column in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# -- bronze ----------------------------------------------------------------------------------------


def _scattered(lake: Lake, fewest: int) -> list[Hour]:
    """Hours whose rows are in many small files."""
    root = lake.tables / MESSAGES.name
    last = last_batch(checkpoint(lake))
    return [
        hour
        for hour in hours_of(lake, MESSAGES)
        if sum(
            file.stat().st_size < SMALL
            for batch in _batches(root / folder_of(hour), last)
            for file in parquet_files(batch)
        )
        >= fewest
    ]


def _batches(hour: Path, last: int) -> list[Path]:
    """The batches of an hour that the stream has committed, or that were put together."""
    return [place for place in hour.glob("batch_id=*") if _number(place) <= last]


def _number(batch: Path) -> int:
    return int(batch.name.removeprefix("batch_id="))


def _gather(spark: SparkSession, lake: Lake, hours: Sequence[Hour]) -> tuple[int, int]:
    from pyspark.sql import functions as f

    root = lake.tables / MESSAGES.name
    last = last_batch(checkpoint(lake))
    batches = [place for hour in hours for place in _batches(root / folder_of(hour), last)]
    # Below zero: the stream will never write a batch of that name.
    number = min(-1, *(_number(place) - 1 for place in batches))
    waiting = staging(lake) / MESSAGES.name
    (
        spark.read.option("basePath", str(root))
        .schema(schema_by_hours(MESSAGES))
        .parquet(*map(str, batches))
        .select(*MESSAGES.names, "date", "hour", f.lit(number).alias("batch_id"))
        .hint("rebalance", "date", "hour")
        .write.mode("overwrite")
        .partitionBy("date", "hour", "batch_id")
        .parquet(str(waiting))
    )
    failpoint("compact.before_messages")
    made = sorted(waiting.glob("date=*/hour=*/batch_id=*"))
    removed = sum(1 for place in batches for _ in parquet_files(place))
    added = sum(1 for place in made for _ in parquet_files(place))
    swap(lake, [(place, root / place.relative_to(waiting)) for place in made], batches)
    return removed, added
