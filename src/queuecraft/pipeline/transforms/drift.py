"""Gold: the fields of each event's payloads, and how they change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from queuecraft.pipeline.schemas import DRIFT
from queuecraft.pipeline.shape import ROOT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DAY: Final = 86_400
SEEN: Final = 3  # times a field must have been there before its absence means something


def drift(fields: DataFrame) -> DataFrame:
    """Fields of all hours together. What is recent is the last day of an event, or its later half
    if it is not two days old: fields are `new` if they only came then, of another `type` if they
    had been there otherwise before, and `gone` if they were there before and no longer are."""
    seen = fields.groupBy("event", "field", "type").agg(
        f.sum("count").alias("count"),
        f.min("first_seen").alias("first_seen"),
        f.max("last_seen").alias("last_seen"),
    )
    payloads = (
        seen.where(f.col("field") == ROOT)
        .groupBy("event")
        .agg(
            f.sum("count").alias("payloads"),
            f.min("first_seen").alias("beginning"),
            f.max("last_seen").alias("end"),
        )
    )
    whole = seen.groupBy("event", "field").agg(f.min("first_seen").alias("field_first"))
    begin, end = f.unix_micros("beginning"), f.unix_micros("end")
    recent = f.timestamp_micros(
        f.greatest((begin + (end - begin) / f.lit(2)).cast("bigint"), end - DAY * 1_000_000)
    )
    joined = (
        seen.join(f.broadcast(payloads), seen["event"].eqNullSafe(payloads["event"]))
        .drop(payloads["event"])
        .withColumn("recent", recent)
    )
    whole = whole.withColumnsRenamed({"event": "_event", "field": "_field"})
    return (
        joined.join(
            whole,
            joined["event"].eqNullSafe(whole["_event"]) & (joined["field"] == whole["_field"]),
        )
        .withColumn("share", f.col("count") / f.col("payloads"))
        .withColumn("change", _change())
        .select(*DRIFT.names)
    )


def _change() -> Column:
    came = f.col("first_seen") > f.col("recent")
    return (
        f.when(came & (f.col("field_first") <= f.col("recent")), "type")
        .when(came, "new")
        .when((f.col("last_seen") < f.col("recent")) & (f.col("count") >= SEEN), "gone")
        .otherwise("")
    )
