"""Silver: one row a message and queue, from what is known of its publish and its deliveries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

from queuecraft.pipeline.schemas import LIFECYCLE
from queuecraft.pipeline.transforms.birth import birth_in

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FINAL: Final = ("succeeded", "dead-lettered", "dropped", "expired")
"""Outcomes after which a message is no longer in its queue."""

SKEW: Final = 1.0
"""Seconds that the clocks of two machines may differ: a wait below zero by less is no wait. One
by more tells of a clock that was set back, and is not known."""


def lifecycle(events: DataFrame) -> DataFrame:
    """The lives of messages: rows may be missing. What was delivered was published, whether a row
    says so or not; what was published through an exchange and not seen since has no queue yet.

    Any `date` and `hour` of birth stay with it.
    """
    born = birth_in(events)
    message = ["message_id", "replay_id", *born]
    published, delivered = f.col("kind") == "published", f.col("kind") == "delivered"
    due = f.coalesce("due_at", "published_at")

    def when_published(column: str) -> Column:
        return f.min_by(f.when(published, f.col(column)), f.when(published, f.col("at")))

    steps = f.struct(
        "at",
        "attempt",
        due.alias("due"),
        "published_at",
        "duration",
        "outcome",
        "reason",
        "error_type",
        "error",
        "fingerprint",
        "event",
        "key",
        "exchange",
        "size",
    )
    by_queue = (
        events.where(published | delivered)
        .repartition(*message)
        .groupBy(*message, "queue")
        .agg(
            f.count(f.when(published, 1)).alias("publishes"),
            f.count(f.when(delivered, 1)).cast("int").alias("deliveries"),
            f.max(f.when(delivered, f.col("attempt"))).alias("attempts"),
            f.max(f.when(delivered, f.col("redeliveries"))).alias("redeliveries"),
            f.sum(f.when(delivered, f.col("duration"))).alias("duration"),
            f.min(f.when(delivered, steps)).alias("first"),
            f.max(f.when(delivered, steps)).alias("last"),
            *(
                when_published(name).alias(f"_{name}")
                for name in ("published_at", "due_at", "at", "event", "key", "exchange", "size")
            ),
        )
    )
    whole = Window.partitionBy(*message)

    def of_publisher(column: str) -> Column:
        """A message may have been sent to this queue alone, or to an exchange."""
        return f.coalesce(f.col(f"_{column}"), f.max(f.col(f"_{column}")).over(whole))

    lives = by_queue.select(
        "*",
        *(
            of_publisher(name).alias(f"p_{name}")
            for name in ("published_at", "due_at", "at", "event", "key", "exchange", "size")
        ),
        f.max("deliveries").over(whole).alias("anywhere"),
    ).where((f.col("deliveries") > 0) | f.col("queue").isNotNull() | (f.col("anywhere") == 0))

    first, last = f.col("first"), f.col("last")
    known_first = f.when(first["attempt"] <= 1, first)
    lives = lives.withColumns(
        {
            "announced": f.col("p_at").isNotNull(),
            "published_at": f.coalesce("p_published_at", first["published_at"], "p_at"),
            "arrived_at": f.coalesce(
                f.greatest(f.coalesce("p_due_at", "p_published_at"), f.col("p_published_at")),
                f.greatest(known_first["due"], first["published_at"]),
                "p_at",
                first["at"],
            ),
        }
    )
    started = f.coalesce(known_first["due"], f.col("arrived_at"))
    return lives.select(
        "message_id",
        "queue",
        "replay_id",
        f.coalesce(last["event"], "p_event").alias("event"),
        f.coalesce(last["key"], "p_key").alias("key"),
        f.coalesce("p_exchange", first["exchange"]).alias("exchange"),
        "announced",
        "published_at",
        "arrived_at",
        first["at"].alias("first_at"),
        last["at"].alias("settled_at"),
        "deliveries",
        f.coalesce("attempts", f.lit(0)).alias("attempts"),
        f.coalesce("redeliveries", f.lit(0)).alias("redeliveries"),
        *(last[name].alias(name) for name in ("outcome", "reason", "error_type", "error")),
        last["fingerprint"].alias("fingerprint"),
        f.when(
            known_first.isNotNull(),
            _after(started, first["at"], f.coalesce(first["duration"], f.lit(0.0))),
        ).alias("wait"),
        "duration",
        f.when(last["outcome"].isin(*FINAL), _after(f.col("arrived_at"), last["at"])).alias(
            "latency"
        ),
        f.coalesce(last["size"], "p_size").alias("size"),
        *born,
    ).select(*LIFECYCLE.names, *born)


def _after(start: Column, end: Column, less: Column | None = None) -> Column:
    """Seconds from one moment to the other, never below zero."""
    seconds = (f.unix_micros(end) - f.unix_micros(start)) / f.lit(1e6)
    if less is not None:
        seconds = seconds - less
    return f.when(seconds > -SKEW, f.greatest(seconds, f.lit(0.0)))
