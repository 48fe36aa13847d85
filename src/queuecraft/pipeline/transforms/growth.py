"""Gold: whether queues grow, and when that is unusual."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

from queuecraft.pipeline.schemas import GROWTH

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

HOUR: Final = 3600
MINUTE: Final = 60
FEWEST: Final = 10  # minutes that must be known before one can be unusual
UNUSUAL: Final = 3.5  # robust deviations: the customary bound for median and MAD
FOLLOWED: Final = 86_400  # seconds that a queue is thought to be still bound after it was last seen


def growth(flows: DataFrame, *, since: datetime | None = None) -> DataFrame:
    """Backlog and its change for each minute in which something came or went, from `since` on. A
    minute that is missing is one in which nothing did: it counts as zero.

    What was published through an exchange is expected in every queue that is known for its event,
    so that a queue whose workers are down is seen to grow. A minute is unusual if more than usual
    has come to stay: by 3.5 times the usual deviation, or that of chance where it is larger.
    """
    changes = (
        _arrivals(flows)
        .unionByName(_expected(flows))
        .groupBy("queue", f.unix_timestamp("minute").alias("second"))
        .agg(f.sum("arrived").alias("arrived"), f.sum("left").alias("left"))
    )
    in_order = Window.partitionBy("queue").orderBy("second")
    known = changes.select(
        "*",
        (f.col("arrived") - f.col("left")).alias("net"),
        f.sum(f.col("arrived") - f.col("left")).over(in_order).alias("backlog"),
        f.min("second").over(Window.partitionBy("queue")).alias("beginning"),
    )
    start = 0 if since is None else int(since.timestamp()) // MINUTE * MINUTE
    known = known.where(f.col("second") >= start - HOUR)
    hour_before = in_order.rangeBetween(-HOUR, -MINUTE)
    minutes = f.least(f.lit(60), ((f.col("second") - f.col("beginning")) / MINUTE).cast("int"))
    scored = (
        known.withColumn("minutes", minutes)
        .withColumn("before", f.collect_list("net").over(hour_before))
        .withColumn(
            "before",
            f.concat(
                "before",
                f.array_repeat(f.lit(0).cast("bigint"), f.col("minutes") - f.size("before")),
            ),
        )
        .withColumn("usual", f.when(f.col("minutes") > 0, _median(f.col("before"))))
        .withColumn(
            "deviation", _median(f.transform("before", lambda x: f.abs(x - f.col("usual"))))
        )
        .withColumn(
            "scale",
            f.greatest(
                1.4826 * f.col("deviation"), f.sqrt(f.greatest("arrived", "left")), f.lit(1.0)
            ),
        )
        .withColumn(
            "score",
            f.when(f.col("minutes") >= FEWEST, (f.col("net") - f.col("usual")) / f.col("scale")),
        )
        .withColumn(
            "anomaly", f.coalesce((f.col("score") >= UNUSUAL) & (f.col("net") > 0), f.lit(False))
        )
    )
    scored = scored.where(f.col("second") >= start)
    return scored.withColumn("minute", f.timestamp_seconds("second")).select(*GROWTH.names)


def _arrivals(flows: DataFrame) -> DataFrame:
    return flows.where("queue IS NOT NULL").select("queue", "minute", "arrived", "left")


def _expected(flows: DataFrame) -> DataFrame:
    """What a queue should have got, and nobody has seen it take yet."""
    queues = (
        flows.where("queue IS NOT NULL AND arrived > 0")
        .groupBy("event", "queue", "minute")
        .agg(f.sum("claimed").alias("claimed"))
    )
    bound = queues.groupBy("event", "queue").agg(f.min("minute").alias("since"))
    sent = flows.where("sent > 0").groupBy("event", "minute").agg(f.sum("sent").alias("sent"))
    # Only what was seen before a minute counts in it: what comes later must not change the past.
    so_far = Window.partitionBy("event", "queue").orderBy("minute")
    last_seen = f.unix_timestamp(f.max("seen").over(so_far))
    return (
        sent.join(f.broadcast(bound), "event")
        .where(f.col("minute") >= f.col("since"))
        .drop("since")
        .unionByName(queues.withColumn("seen", f.col("minute")), allowMissingColumns=True)
        .groupBy("event", "queue", "minute")
        .agg(
            (f.coalesce(f.sum("sent"), f.lit(0)) - f.coalesce(f.sum("claimed"), f.lit(0))).alias(
                "arrived"
            ),
            f.max("seen").alias("seen"),
        )
        .withColumn("recently", last_seen >= f.unix_timestamp("minute") - FOLLOWED)
        .where("recently AND arrived > 0")
        .select("queue", "minute", "arrived", f.lit(0).cast("bigint").alias("left"))
    )


def _median(values: Column) -> Column:
    ordered = f.array_sort(values)
    count = f.size(values)
    lower = f.get(ordered, f.floor((count - 1) / 2).cast("int"))
    upper = f.get(ordered, f.floor(count / 2).cast("int"))
    return (lower + upper) / 2
