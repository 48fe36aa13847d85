"""From the tables of a lake to the few rows that a report needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from queuecraft.pipeline.report.figures import Axis
    from queuecraft.pipeline.report.scope import Scope

COUNTS = (
    *("published", "delivered", "succeeded", "retried", "dead_lettered", "dropped", "expired"),
    "bytes",
)
TIMES = ("wait", "duration", "latency")
FAILED = ("retried", "dead_lettered", "dropped")
NEAR = 10_000  # a percentile is off by one in so many ranks at most; of fewer it is exact


def whole(throughput: DataFrame) -> DataFrame:
    """One row: everything together, the first and the last minute, and how many queues."""
    return throughput.agg(
        *_sums(),
        _seconds(f.min("minute")).alias("first"),
        _seconds(f.max("minute")).alias("last"),
        f.count_distinct("queue").alias("queues"),
    )


def busiest_queues(throughput: DataFrame, most: int) -> DataFrame:
    """A row for each queue, that with the most deliveries first."""
    return (
        throughput.where(f.col("queue").isNotNull())
        .groupBy("queue")
        .agg(*_sums())
        .orderBy(f.desc("delivered"), f.desc("published"), "queue")
        .limit(most)
    )


def counts_by_time(throughput: DataFrame, axis: Axis, queues: Sequence[str]) -> DataFrame:
    """A row for each stretch of time and each of these queues; all others are one, without name."""
    return _placed(throughput, "minute", axis, queues).groupBy("place", "queue").agg(*_sums())


def counts_by_hour(throughput: DataFrame, *, weekly: bool) -> DataFrame:
    """A row for each day since the epoch, or day of the week from 0, a Monday; and each hour."""
    minute = f.col("minute")
    day = f.weekday(minute) if weekly else f.unix_date(f.to_date(minute))
    return throughput.groupBy(day.alias("day"), f.hour(minute).alias("hour")).agg(*_sums())


def speed_by_queue(lifecycle: DataFrame, scope: Scope, queues: Sequence[str]) -> DataFrame:
    """A row for each of these queues, and one for all others, without name: how many messages were
    published in this time, how many of them no worker has seen, and how long those took that were
    settled in it."""
    published = scope.at("published_at") & f.col("published_at").isNotNull()
    settled = scope.at("settled_at") & f.col("settled_at").isNotNull()
    return (
        lifecycle.where(published | settled)
        .withColumns({"seen": f.col("queue").isNotNull(), "queue": _named(queues)})
        .groupBy("queue")
        .agg(
            f.count_if(published).alias("published"),
            f.count_if(published & ~f.col("seen")).alias("unseen"),
            *(_percentiles(name, settled) for name in TIMES),
        )
    )


def latency_by_time(
    lifecycle: DataFrame, scope: Scope, axis: Axis, queues: Sequence[str]
) -> DataFrame:
    """A row for each stretch of time, `whole`, and for each of these queues in it; all others are
    one, without name. The row without a place is all time and all queues."""
    settled = lifecycle.where(scope.at("settled_at") & f.col("latency").isNotNull())
    return (
        _placed(settled, "settled_at", axis, queues)
        .rollup("place", "queue")
        .agg((f.grouping("queue") == 1).alias("whole"), _percentiles("latency"))
    )


def published_by_time(
    lifecycle: DataFrame, scope: Scope, axis: Axis, queues: Sequence[str]
) -> DataFrame:
    """A row for each stretch of time in which messages for one of these queues were published."""
    chosen = lifecycle.where(scope.at("published_at") & f.col("queue").isNotNull())
    return (
        _placed(chosen, "published_at", axis, queues)
        .groupBy("place", "queue")
        .agg(f.count("*").alias("published"))
    )


def worst_minutes(throughput: DataFrame, most: int) -> DataFrame:
    """The minutes with the most failures."""
    failed = sum((f.col(name) for name in FAILED), start=f.lit(0))
    return _minutes(throughput.where(failed > 0), failed.desc(), most)


def slowest_minutes(throughput: DataFrame, most: int) -> DataFrame:
    """The minutes in which messages took longest."""
    return _minutes(
        throughput.where(f.col("latency_p99").isNotNull()), f.col("latency_p99").desc(), most
    )


def growth_by_queue(growth: DataFrame, most: int) -> DataFrame:
    """A row for each queue, those with anomalies and the longest first."""
    return (
        growth.where(f.col("queue").isNotNull())
        .groupBy("queue")
        .agg(
            f.max_by("backlog", "minute").alias("backlog"),
            f.max("backlog").alias("highest"),
            f.sum("arrived").alias("arrived"),
            f.sum("left").alias("left"),
            f.count_if("anomaly").alias("anomalies"),
        )
        .orderBy(f.desc("anomalies"), f.desc("highest"), "queue")
        .limit(most)
    )


def growth_by_time(growth: DataFrame, axis: Axis, queues: Sequence[str]) -> DataFrame:
    """A row for each stretch of time in which one of these queues changed: its backlog at most and
    in the end, and whether there was an anomaly."""
    return (
        _placed(growth.where(f.col("queue").isin(list(queues))), "minute", axis, queues)
        .groupBy("place", "queue")
        .agg(
            f.max("backlog").alias("highest"),
            f.max_by("backlog", "minute").alias("backlog"),
            f.coalesce(f.bool_or("anomaly"), f.lit(False)).alias("anomaly"),
        )
    )


def anomalies(growth: DataFrame, most: int) -> DataFrame:
    """The most unusual minutes."""
    return (
        growth.where("anomaly")
        .orderBy(f.abs("score").desc_nulls_last(), f.col("minute").desc(), "queue")
        .limit(most)
        .select(_seconds("minute").alias("at"), "queue", "arrived", "left", "usual", "score")
    )


def changes(drift: DataFrame, most: int) -> DataFrame:
    """The fields that changed, the latest first."""
    return (
        drift.where(f.coalesce("change", f.lit("")) != "")
        .orderBy(_changed().desc_nulls_last(), "event", "field", "type")
        .limit(most)
        .select(
            *("event", "field", "type", "count", "share", "change"),
            _seconds("first_seen").alias("first_seen"),
            _seconds("last_seen").alias("last_seen"),
        )
    )


def extent(drift: DataFrame) -> DataFrame:
    """One row: how many events and fields are known, and how many changes."""
    return drift.agg(
        f.count_distinct("event").alias("events"),
        f.count_distinct("event", "field").alias("fields"),
        f.count_if(f.coalesce("change", f.lit("")) != "").alias("changes"),
    )


def problems(quarantine: DataFrame, most: int) -> DataFrame:
    """Why rows could not be read, the most frequent reason first."""
    return (
        quarantine.groupBy(f.coalesce("problem", f.lit("unknown")).alias("problem"))
        .agg(f.count("*").alias("count"), f.max("segment").alias("segment"))
        .orderBy(f.desc("count"), "problem")
        .limit(most)
    )


def _changed() -> Column:
    """When it was noticed: a field that is gone was last seen then, any other first seen."""
    return f.when(f.col("change") == "gone", f.col("last_seen")).otherwise(f.col("first_seen"))


def _seconds(column: Column | str) -> Column:
    """A time since the epoch: it means the same wherever it is collected."""
    return f.unix_micros(column) / 1e6


def _sums() -> list[Column]:
    return [f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in COUNTS]


def _percentiles(name: str, among: Column | None = None) -> Column:
    value = f.col(name) if among is None else f.when(among, f.col(name))
    quantiles = f.array(*(f.lit(each) for each in (0.5, 0.95, 0.99)))
    return f.percentile_approx(value, quantiles, NEAR).alias(name)


def _placed(frame: DataFrame, column: str, axis: Axis, queues: Sequence[str]) -> DataFrame:
    """With the stretch of time each row is in, and no name of a queue that is not among these."""
    place = f.floor((f.unix_seconds(column) - axis.start) / axis.step).cast("int")
    return frame.withColumns({"place": place, "queue": _named(queues)}).where(
        f.col("place").between(0, axis.count - 1)
    )


def _named(queues: Sequence[str]) -> Column:
    """The name of the queue if it is one of these, else none."""
    return f.when(f.col("queue").isin(list(queues)), f.col("queue"))


def _minutes(throughput: DataFrame, order: Column, most: int) -> DataFrame:
    return (
        throughput.orderBy(
            order, f.col("latency_p99").desc_nulls_last(), f.desc("minute"), "queue", "event"
        )
        .limit(most)
        .select(_seconds("minute").alias("at"), "queue", "event", *COUNTS, "latency_p99")
    )
