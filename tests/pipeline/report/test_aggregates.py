"""What Spark hands to a report is bounded, whatever is in the lake."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.report import aggregates
from queuecraft.pipeline.report.axis import axis_over
from queuecraft.pipeline.report.scope import Scope
from queuecraft.pipeline.report.tables import table
from queuecraft.pipeline.schemas import THROUGHPUT
from tests.pipeline.report.written import START, at, minute, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.faults
def test_a_million_minutes_of_a_thousand_queues_become_a_few_rows(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    start, minutes = int(START.timestamp()), 1_000_000
    one = f.lit(1).cast("bigint")
    throughput = spark.range(minutes).select(
        f.timestamp_seconds(f.col("id") * 60 + start).alias("minute"),
        f.concat(f.lit("queue-"), f.col("id") % 1000).alias("queue"),
        *(one.alias(name) for name in aggregates.COUNTS),
    )
    (whole,) = aggregates.whole(throughput).collect()
    assert (whole["delivered"], whole["queues"]) == (minutes, 1000)
    axis = axis_over(int(whole["first"]), int(whole["last"]))
    names = [row["queue"] for row in aggregates.busiest_queues(throughput, 3).collect()]
    assert names == ["queue-0", "queue-1", "queue-10"]
    rows = aggregates.counts_by_time(throughput, axis, names).collect()
    assert axis.count <= 120
    assert len(rows) <= 4 * axis.count
    assert sum(row["delivered"] for row in rows) == minutes
    assert len(aggregates.counts_by_hour(throughput, weekly=True).collect()) == 7 * 24


def test_days_of_the_week_begin_with_monday(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.testing import assertDataFrameEqual

    lake = Lake.at(tmp_path)
    sunday = START - timedelta(days=1)
    write(lake, THROUGHPUT, [minute(0, "a", delivered=2), {**minute(0, "a"), "minute": sunday}])
    found = aggregates.counts_by_hour(table(spark, lake, THROUGHPUT), weekly=True)
    assertDataFrameEqual(
        found.select("day", "hour", "delivered"),
        spark.createDataFrame([(0, 9, 2), (6, 9, 0)], "day int, hour int, delivered bigint"),
    )


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (("order.placed",), ["order.placed"]),
        (("order.*",), ["order.paid", "order.placed"]),
        (("order.#",), ["order", "order.item.added", "order.paid", "order.placed"]),
        (("#.added", "user"), ["order.item.added", "user"]),
        (("or.er",), []),
    ],
)
def test_events_are_chosen_by_patterns(
    spark: SparkSession, patterns: tuple[str, ...], names: list[str]
) -> None:
    known = ["order", "order.item.added", "order.paid", "order.placed", "user"]
    frame = spark.createDataFrame([(name,) for name in known], "event string")
    chosen = Scope(events=patterns).about(frame).collect()
    assert [row["event"] for row in chosen] == names


def test_a_scope_begins_at_its_first_moment_and_ends_before_its_last(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(at(n),) for n in range(4)], "at timestamp")
    assert frame.where(Scope(since=at(1), until=at(3)).at("at")).count() == 2
