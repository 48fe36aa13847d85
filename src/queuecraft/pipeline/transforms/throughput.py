"""Gold: how much, how well and how fast, by the minute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from queuecraft.pipeline.schemas import THROUGHPUT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OUTCOMES: Final = {
    "succeeded": "succeeded",
    "retried": "retried",
    "dead_lettered": "dead-lettered",
    "dropped": "dropped",
    "expired": "expired",
}
PERCENTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
NUMBERS: Final = ("kind", "outcome", "size", "wait", "duration", "latency")


def throughput(events: DataFrame, lifecycle: DataFrame) -> DataFrame:
    """Counts from events; waits, by the minute of the first delivery, and latencies, by that of
    the last, from the lives of messages. Percentiles are exact, between two values in proportion.
    """
    rows = events.where(f.col("kind").isin("published", "delivered"))
    parts = [
        _numbers(rows, "at", kind="kind", outcome="outcome", size="size"),
        _numbers(rows.where("kind = 'delivered'"), "at", duration="duration"),
        _numbers(lifecycle.where("wait IS NOT NULL"), "first_at", wait="wait"),
        _numbers(lifecycle.where("latency IS NOT NULL"), "settled_at", latency="latency"),
    ]
    numbers = parts[0]
    for part in parts[1:]:
        numbers = numbers.unionByName(part)
    counted = numbers.groupBy(*THROUGHPUT.key).agg(
        f.count(f.when(f.col("kind") == "published", 1)).alias("published"),
        f.count(f.when(f.col("kind") == "delivered", 1)).alias("delivered"),
        *(f.count(f.when(f.col("outcome") == o, 1)).alias(n) for n, o in OUTCOMES.items()),
        f.coalesce(f.sum("size"), f.lit(0)).alias("bytes"),
        *(
            f.percentile(name, f.array(*map(f.lit, PERCENTILES.values()))).alias(name)
            for name in ("wait", "duration", "latency")
        ),
    )
    failed = f.col("retried") + f.col("dead_lettered") + f.col("dropped")
    return counted.select(
        "*",
        _share(failed, f.col("delivered")).alias("failure_rate"),
        _share(f.col("retried"), f.col("delivered")).alias("retry_rate"),
        *(
            f.get(f.col(name), f.lit(place)).alias(f"{name}_{percentile}")
            for name in ("wait", "duration", "latency")
            for place, percentile in enumerate(PERCENTILES)
        ),
    ).select(*THROUGHPUT.names)


def _numbers(rows: DataFrame, time: str, **known: str) -> DataFrame:
    kinds = {"kind": "string", "outcome": "string", "size": "bigint"}
    return rows.select(
        f.date_trunc("minute", time).alias("minute"),
        "queue",
        "event",
        *(
            f.col(known[name])
            if name in known
            else f.lit(None).cast(kinds.get(name, "double")).alias(name)
            for name in NUMBERS
        ),
    )


def _share(part: Column, whole: Column) -> Column:
    return f.when(whole > 0, part / whole)
