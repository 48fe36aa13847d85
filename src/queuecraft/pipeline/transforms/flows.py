"""What came into queues and left them, by the minute: what growth is reckoned from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from queuecraft.pipeline.schemas import FLOWS
from queuecraft.pipeline.transforms.birth import birth_in
from queuecraft.pipeline.transforms.lifecycle import FINAL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def flows(lifecycle: DataFrame) -> DataFrame:
    """Comings and goings of messages. What was published through an exchange stands once without
    a queue, under `sent`, and under `claimed` in each queue where it was seen."""
    born = birth_in(lifecycle)
    through_exchange = f.col("announced") & f.col("exchange").isNotNull()
    place = ["minute", "event", "queue", *born]
    arrivals = (
        lifecycle.where("queue IS NOT NULL")
        .groupBy(f.date_trunc("minute", "arrived_at").alias("minute"), "event", "queue", *born)
        .agg(
            f.count("*").alias("arrived"),
            f.lit(0).cast("bigint").alias("left"),
            f.lit(0).cast("bigint").alias("sent"),
            f.count(f.when(through_exchange, 1)).alias("claimed"),
        )
    )
    departures = (
        lifecycle.where(f.col("queue").isNotNull() & f.col("outcome").isin(*FINAL))
        .groupBy(f.date_trunc("minute", "settled_at").alias("minute"), "event", "queue", *born)
        .agg(f.count("*").alias("left"))
    )
    sent = (
        lifecycle.where(through_exchange)
        .groupBy(f.date_trunc("minute", "arrived_at").alias("minute"), "event", *born)
        .agg(f.count_distinct("message_id", f.coalesce("replay_id", f.lit(""))).alias("sent"))
        .withColumn("queue", f.lit(None).cast("string"))
    )
    counts = {name: f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in FLOWS.names[3:]}
    return (
        arrivals.unionByName(departures, allowMissingColumns=True)
        .unionByName(sent, allowMissingColumns=True)
        .groupBy(*place)
        .agg(*counts.values())
        .select(*FLOWS.names, *born)
    )
