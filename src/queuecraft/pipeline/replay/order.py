"""The order of a replay: chunks that follow each other in time. `DataFrame → DataFrame`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from queuecraft.pipeline.replay.table import AT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

STRETCH = 100_000  # messages that are brought into order in one go


def bounds(messages: DataFrame, count: int, stretch: int) -> list[int]:
    """Times, in microseconds, that part the messages into stretches of about that many. Which they
    are does not change the order, only how many cores share the work."""
    parts = min(1000, -(-count // stretch))
    if parts <= 1:
        return []
    shares = [part / parts for part in range(1, parts)]
    (row,) = messages.agg(f.percentile_approx(_micros(), shares, 100 * parts).alias("at")).collect()
    return sorted(set(row["at"] or ()))  # none of them may have a time


def numbered(messages: DataFrame, between: Sequence[int]) -> DataFrame:
    """The messages with their `position`, from 0 on: by the time of publishing, which many may have
    in common, then as they were captured, then by id."""
    within = f.row_number().over(
        Window.partitionBy("stretch").orderBy(
            "published_at", AT, "message_id", *_text("queue", "exchange", "event", "key")
        )
    )
    parted = messages.withColumn("stretch", _stretch(between))
    before = f.lit(0)
    if between:
        offsets = _offsets(parted, len(between) + 1)
        before = f.get(f.array(*map(f.lit, offsets)), f.col("stretch"))
    return parted.withColumn("position", (before + within - 1).cast("bigint")).drop("stretch")


def chunked(messages: DataFrame, canary: int, chunk: int) -> DataFrame:
    """The messages with their `chunk`: the first few are number 0."""
    later = f.floor((f.col("position") - canary) / chunk) + 1
    return messages.withColumn(
        "chunk", f.when(f.col("position") < canary, 0).otherwise(later).cast("int")
    )


def by_key(messages: DataFrame, tasks: int) -> DataFrame:
    """The messages of a chunk, shared out to tasks: one has all of a key, in order. A queue and an
    event without keys are spread by id."""
    lane = f.coalesce("key", "message_id")
    return messages.repartition(tasks, lane).sortWithinPartitions("position")


def _micros() -> Column:
    return f.unix_micros("published_at")


def _stretch(between: Sequence[int]) -> Column:
    """The number of bounds at or before the time; none at all is one stretch."""
    if not between:
        return f.lit(0)
    return f.size(f.filter(f.array(*map(f.lit, between)), lambda bound: bound <= _micros()))


def _offsets(parted: DataFrame, stretches: int) -> list[int]:
    """How many messages come before each stretch."""
    counts = {row["stretch"]: row["count"] for row in parted.groupBy("stretch").count().collect()}
    sizes = [counts.get(stretch, 0) for stretch in range(stretches)]
    return [0, *accumulate(sizes)][:-1]


def _text(*names: str) -> list[Column]:
    return [f.coalesce(f.col(name), f.lit("")) for name in names]
