"""The order of a replay."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from queuecraft.pipeline.replay.order import bounds, by_key, chunked, numbered
from queuecraft.pipeline.replay.plan import chunk_sizes
from queuecraft.pipeline.replay.table import AT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 500


def messages(spark: SparkSession) -> DataFrame:
    """Messages of a few keys, in no order, many of them of the same moment."""
    chance = random.Random(7)
    rows = [
        (
            f"m-{n:04}",
            chance.choice(["a", "b", "c", None]),
            chance.randrange(60),
            chance.randrange(9),
        )
        for n in range(COUNT)
    ]
    chance.shuffle(rows)
    columns = "message_id string, key string, second long, micro long"
    return spark.createDataFrame(rows, columns).select(
        "message_id",
        "key",
        f.timestamp_seconds("second").alias("published_at"),
        f.timestamp_micros("micro").alias(AT),
        *(f.lit(None).cast("string").alias(name) for name in ("queue", "exchange", "event")),
    )


def test_positions_do_not_depend_on_how_the_work_is_shared(spark: SparkSession) -> None:
    given = messages(spark)
    between = bounds(given, COUNT, stretch=100)
    assert len(between) >= 3
    whole = {row["message_id"]: row["position"] for row in numbered(given, []).collect()}
    shared = {row["message_id"]: row["position"] for row in numbered(given, between).collect()}
    assert shared == whole
    assert sorted(shared.values()) == list(range(COUNT))


def test_messages_of_one_moment_are_in_the_order_they_were_captured_in(spark: SparkSession) -> None:
    rows = numbered(messages(spark), []).orderBy("position").collect()
    told = [(row["published_at"], row[AT], row["message_id"]) for row in rows]
    assert told == sorted(told)


def test_chunks_follow_each_other_in_time_and_keys_keep_their_order(spark: SparkSession) -> None:
    given = chunked(numbered(messages(spark), []), canary=20, chunk=100)
    sizes = chunk_sizes(COUNT, canary=20, chunk=100)
    sent: list[tuple[str | None, int]] = []
    for number, size in enumerate(sizes):
        tasks = by_key(given.where(f.col("chunk") == number), 3)
        rows = tasks.withColumn("task", f.spark_partition_id()).collect()
        assert len(rows) == size
        by_task: dict[str, set[int]] = {}
        for row in rows:
            if row["key"] is not None:
                by_task.setdefault(row["key"], set()).add(row["task"])
        assert all(len(each) == 1 for each in by_task.values()), "a key is one task's alone"
        assert len({row["task"] for row in rows}) > 1
        sent += [(row["key"], row["position"]) for row in rows]
    for key in "abc":
        positions = [position for each, position in sent if each == key]
        assert positions == sorted(positions)
    assert sorted(position for _, position in sent) == list(range(COUNT))
