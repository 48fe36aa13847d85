"""Whether queues grow."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.testing import assertDataFrameEqual

from queuecraft.pipeline.schemas import FLOWS, GROWTH
from queuecraft.pipeline.transforms.flows import flows
from queuecraft.pipeline.transforms.growth import growth
from queuecraft.pipeline.transforms.lifecycle import lifecycle
from tests.pipeline.rows import at, delivered, published
from tests.pipeline.transforms.frames import bronze, collected, frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def flow(minute: int, arrived: int, left: int, **more: Any) -> dict[str, Any]:
    usual = {"event": "order.placed", "queue": "billing", "sent": 0, "claimed": 0}
    return {"minute": at(minutes=minute), "arrived": arrived, "left": left, **usual, **more}


def sent(minute: int, count: int) -> dict[str, Any]:
    return flow(minute, 0, 0, queue=None, sent=count)


def grown(spark: SparkSession, *rows: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """By minutes since noon."""
    found = collected(growth(frame(spark, FLOWS, rows)))
    return {(each["minute"] - at()) // timedelta(minutes=1): each for each in found}


def test_a_message_comes_when_it_is_published_and_leaves_when_it_is_settled(
    spark: SparkSession,
) -> None:
    events = bronze(
        spark,
        published("m-1"),
        delivered("m-1", at(70)),
        delivered("m-1", at(10), "retried", queue="audit"),
        published("m-2"),
    )
    expected = [
        flow(0, 1, 0, claimed=1),
        flow(1, 0, 1),
        flow(0, 1, 0, queue="audit", claimed=1),
        sent(0, 2),
    ]
    assertDataFrameEqual(flows(lifecycle(events)), frame(spark, FLOWS, expected))


def test_a_backlog_is_what_came_less_what_left_since_the_beginning(spark: SparkSession) -> None:
    rows = [flow(0, 5, 1), flow(1, 2, 3), flow(7, 0, 3)]
    expected = [
        {"minute": at(), "queue": "billing", "arrived": 5, "left": 1, "backlog": 4},
        {"minute": at(60), "arrived": 2, "left": 3, "backlog": 3, "usual": 4.0},
        {"minute": at(420), "arrived": 0, "left": 3, "backlog": 0, "usual": 0.0},
    ]
    assertDataFrameEqual(
        growth(frame(spark, FLOWS, rows)),
        frame(spark, GROWTH, [{"queue": "billing", "anomaly": False, **each} for each in expected]),
    )


def test_a_burst_that_stays_is_unusual(spark: SparkSession) -> None:
    steady = [flow(minute, 10, 10 + minute % 3 - 1) for minute in range(60)]
    found = grown(spark, *steady, flow(60, 100, 10))
    assert [minute for minute, each in found.items() if each["anomaly"]] == [60]
    assert found[60]["usual"] == 0.0
    assert found[60]["score"] == pytest.approx(90 / 10)  # chance: the root of 100


def test_a_queue_that_always_swings_is_not_unusual(spark: SparkSession) -> None:
    swings = [flow(minute, 50 + 40 * (-1) ** minute, 50) for minute in range(61)]
    assert not any(each["anomaly"] for each in grown(spark, *swings).values())


def test_minutes_without_traffic_count_as_zero(spark: SparkSession) -> None:
    # The few minutes with traffic all grew by 20; the hour as a whole did not.
    rare = [flow(minute, 20, 0) for minute in (0, 20, 40)]
    found = grown(spark, *rare, flow(59, 20, 0))
    assert found[59]["usual"] == 0.0
    assert found[59]["anomaly"]


def test_nothing_is_unusual_before_something_is_usual(spark: SparkSession) -> None:
    found = grown(spark, flow(0, 1, 1), flow(5, 500, 0))
    assert (found[5]["score"], found[5]["anomaly"]) == (None, False)


def test_emptying_a_queue_is_no_anomaly(spark: SparkSession) -> None:
    steady = [flow(minute, 10, 10) for minute in range(30)]
    found = grown(spark, *steady, flow(30, 10, 500))
    assert found[30]["score"] < -3.5
    assert not found[30]["anomaly"]


def test_a_queue_whose_workers_are_down_is_seen_to_grow(spark: SparkSession) -> None:
    working = [flow(minute, 10, 10, claimed=10) for minute in range(20)]
    published = [sent(minute, 10) for minute in range(25)]
    found = grown(spark, *working, *published)
    assert [found[minute]["backlog"] for minute in (19, 20, 24)] == [0, 10, 50]


def test_a_queue_that_was_not_seen_for_a_day_is_not_expected_to_get_anything(
    spark: SparkSession,
) -> None:
    day = 24 * 60
    found = grown(spark, flow(0, 1, 1, claimed=1), sent(0, 1), sent(day, 3), sent(day + 1, 4))
    assert {minute: each["arrived"] for minute, each in found.items()} == {0: 1, day: 3}


def test_what_comes_later_does_not_change_the_past(spark: SparkSession) -> None:
    rows = [flow(minute, 7, 5, claimed=6) for minute in range(0, 200, 3)]
    rows += [sent(minute, 8) for minute in range(0, 230, 2)]
    whole = collected(growth(frame(spark, FLOWS, rows)))
    since = at(minutes=150)
    assertDataFrameEqual(
        growth(frame(spark, FLOWS, rows), since=since),
        frame(spark, GROWTH, [each for each in whole if each["minute"] >= since]),
    )
    before = [each for each in rows if each["minute"] < since]
    assertDataFrameEqual(
        growth(frame(spark, FLOWS, before)),
        frame(spark, GROWTH, [each for each in whole if each["minute"] < since]),
    )
