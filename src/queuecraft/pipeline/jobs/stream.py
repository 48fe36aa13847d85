"""Segments into bronze: each one once, by a stream that remembers what it has read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from queuecraft.failpoints import failpoint
from queuecraft.pipeline.jobs.hours import Hours, Known, hour_in
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.schemas import MESSAGES, SEGMENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES: Final = 1_000
"""Segments in one batch at most: what a death can cost."""

COMPACTED: Final = "~"
"""How the names of segments begin that were made of others: the stream has read those."""


def checkpoint(lake: Lake) -> Path:
    """How far the stream has come."""
    return lake.checkpoints / "ingest" / "stream"


def take_segments(
    spark: SparkSession, lake: Lake, on_rows: Callable[[int], object] = lambda rows: None
) -> None:
    """Put all segments that are new into bronze; `on_rows` is told how many rows they have had so
    far."""
    lake.segments.mkdir(parents=True, exist_ok=True)
    before = Hours(lake).waiting
    source = (
        spark.readStream.schema(SEGMENTS.spark.add("date", "string"))
        .option("maxFilesPerTrigger", FILES)
        .option("pathGlobFilter", f"[!{COMPACTED}]*.parquet")
        # A segment is known by its name, wherever the lake is moved, and however old it is.
        .option("fileNameOnly", True)
        .option("maxFileAge", "36500d")
        .parquet(str(lake.segments))
    )
    query = (
        source.select(*SEGMENTS.names, "date", "_metadata.file_path")
        # With Spark Connect this runs in the server: what it has done is seen by its notes.
        .writeStream.foreachBatch(partial(_put, root=str(lake.root)))
        .option("checkpointLocation", str(checkpoint(lake)))
        .trigger(availableNow=True)
        .start()
    )
    try:
        while not query.awaitTermination(1):
            on_rows(Hours(lake).waiting - before)
    finally:
        query.stop()
    on_rows(Hours(lake).waiting - before)


def _put(segments: DataFrame, batch: int, *, root: str) -> None:
    from pyspark.sql import functions as f

    from queuecraft.pipeline.transforms.messages import messages

    lake = Lake.at(root)
    failpoint("ingest.before_batch")
    (
        messages(segments)
        .withColumn("batch_id", f.lit(batch))
        .write.mode("overwrite")
        .option("partitionOverwriteMode", "dynamic")
        .partitionBy("date", "hour", "batch_id")
        .parquet(str(lake.tables / MESSAGES.name))
    )
    failpoint("ingest.after_write")
    Hours(lake).note(batch, _touched(segments.sparkSession, lake, batch))
    failpoint("ingest.after_note")


def _touched(spark: SparkSession, lake: Lake, batch: int) -> dict[str, Known]:
    """What is in a batch, by what was written of it: two columns and the names of folders. What has
    a problem happens nowhere."""
    from pyspark.sql import functions as f

    root = lake.tables / MESSAGES.name
    places = [str(place) for place in root.glob(f"date=*/hour=*/batch_id={batch}")]
    touched: dict[str, Known] = {}
    if not places:
        return touched
    rows = (
        spark.read.schema("at timestamp, problem string, date string, hour int")
        .option("basePath", str(root))
        .parquet(*places)
        .groupBy(
            "date", "hour", f.when(f.isnull("problem"), f.date_trunc("hour", "at")).alias("at")
        )
        .count()
        .select("date", "hour", f.date_format("at", "yyyy-MM-dd'T'HH").alias("at"), "count")
    )
    for date, hour, at, count in rows.collect():
        happened = set() if at is None else {at}
        touched.setdefault(hour_in(date, hour), Known()).add(Known(count, happened))
    return touched
