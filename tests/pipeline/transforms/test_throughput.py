"""How much, how well and how fast, by the minute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.testing import assertDataFrameEqual

from queuecraft.pipeline.schemas import THROUGHPUT
from queuecraft.pipeline.transforms.lifecycle import lifecycle
from queuecraft.pipeline.transforms.throughput import throughput
from tests.pipeline.rows import at, delivered, published
from tests.pipeline.transforms.frames import bronze, collected, frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNTS = ("published", "delivered", "succeeded", "retried", "dead_lettered", "dropped", "expired")


def minutes(spark: SparkSession, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    events = bronze(spark, *rows)
    found = collected(throughput(events, lifecycle(events)))
    return sorted(found, key=lambda each: (each["minute"], each["queue"] or ""))


def test_one_message_counts_where_it_was_published_and_where_it_was_handled(
    spark: SparkSession,
) -> None:
    events = bronze(spark, published("m-1"), delivered("m-1"))
    nothing: dict[str, Any] = dict.fromkeys(COUNTS, 0)
    sent = {"minute": at(), "event": "order.placed", **nothing, "published": 1, "bytes": 10}
    handled = {**nothing, "minute": at(), "queue": "billing", "event": "order.placed"}
    handled |= {"delivered": 1, "succeeded": 1, "bytes": 10, "failure_rate": 0.0, "retry_rate": 0.0}
    for name, value in (("wait", 1.5), ("duration", 0.5), ("latency", 2.0)):
        handled |= {f"{name}_{percentile}": value for percentile in ("p50", "p95", "p99")}
    assertDataFrameEqual(
        throughput(events, lifecycle(events)), frame(spark, THROUGHPUT, [sent, handled])
    )


def test_rates_are_of_deliveries(spark: SparkSession) -> None:
    outcomes = ("succeeded", "succeeded", "retried", "dead-lettered", "dropped", "expired")
    rows = [delivered(f"m-{number}", outcome=each) for number, each in enumerate(outcomes)]
    (minute,) = minutes(spark, *rows)
    assert [minute[name] for name in COUNTS] == [0, 6, 2, 1, 1, 1, 1]
    assert minute["failure_rate"] == pytest.approx(3 / 6)
    assert minute["retry_rate"] == pytest.approx(1 / 6)


def test_percentiles_are_exact(spark: SparkSession) -> None:
    rows = [delivered(f"m-{n}", at(50), duration=n / 100) for n in range(101)]
    (minute,) = minutes(spark, *rows)
    found = [minute[f"duration_{name}"] for name in ("p50", "p95", "p99")]
    assert found == pytest.approx([0.5, 0.95, 0.99])


def test_latency_counts_in_the_minute_of_the_end_and_wait_in_that_of_the_start(
    spark: SparkSession,
) -> None:
    first, last = minutes(
        spark,
        delivered("m-1", at(2), "retried"),
        delivered("m-1", at(122), attempt=2, due_at=at(120)),
    )
    assert (first["minute"], first["wait_p50"], first["latency_p50"]) == (at(), 1.5, None)
    assert (last["minute"], last["wait_p50"], last["latency_p50"]) == (at(120), None, 122.0)
