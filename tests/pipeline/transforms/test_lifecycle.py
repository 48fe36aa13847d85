"""One row a message and queue, whatever is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.testing import assertDataFrameEqual

from queuecraft.pipeline.schemas import LIFECYCLE
from queuecraft.pipeline.transforms.lifecycle import lifecycle
from tests.pipeline.rows import at, delivered, published, row
from tests.pipeline.transforms.frames import bronze, collected, frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIFE: dict[str, Any] = {
    "message_id": "m-1",
    "queue": "billing",
    "event": "order.placed",
    "exchange": "events",
    "announced": True,
    "published_at": at(),
    "arrived_at": at(),
    "first_at": at(2),
    "settled_at": at(2),
    "deliveries": 1,
    "attempts": 1,
    "redeliveries": 0,
    "outcome": "succeeded",
    "wait": 1.5,
    "duration": 0.5,
    "latency": 2.0,
    "size": 10,
}
UNSEEN: dict[str, Any] = {
    **LIFE,
    "queue": None,
    "first_at": None,
    "settled_at": None,
    "deliveries": 0,
    "attempts": 0,
    "outcome": None,
    "wait": None,
    "duration": None,
    "latency": None,
}


def lives(spark: SparkSession, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    return collected(lifecycle(bronze(spark, *rows)))


def test_a_message_that_was_published_and_handled(spark: SparkSession) -> None:
    rows = bronze(spark, published("m-1"), delivered("m-1"))
    assertDataFrameEqual(lifecycle(rows), frame(spark, LIFECYCLE, [LIFE]))


def test_a_message_has_a_life_in_each_queue(spark: SparkSession) -> None:
    rows = bronze(spark, published("m-1"), delivered("m-1"), delivered("m-1", at(4), queue="audit"))
    audit = {**LIFE, "queue": "audit", "first_at": at(4), "settled_at": at(4)}
    audit |= {"wait": 3.5, "latency": 4.0}
    assertDataFrameEqual(lifecycle(rows), frame(spark, LIFECYCLE, [LIFE, audit]))


def test_what_nobody_has_taken_yet_has_no_queue(spark: SparkSession) -> None:
    assertDataFrameEqual(
        lifecycle(bronze(spark, published("m-1"))), frame(spark, LIFECYCLE, [UNSEEN])
    )


def test_what_was_sent_to_a_queue_waits_there(spark: SparkSession) -> None:
    sent = published("m-1", queue="billing", exchange=None)
    life = {**UNSEEN, "queue": "billing", "exchange": None}
    assertDataFrameEqual(lifecycle(bronze(spark, sent)), frame(spark, LIFECYCLE, [life]))


def test_the_row_of_the_publisher_may_be_missing(spark: SparkSession) -> None:
    life = {**LIFE, "exchange": None, "announced": False}
    assertDataFrameEqual(
        lifecycle(bronze(spark, delivered("m-1"))), frame(spark, LIFECYCLE, [life])
    )


def test_retries_are_one_life_and_its_end_counts(spark: SparkSession) -> None:
    trouble: dict[str, Any] = {
        "reason": "error",
        "error_type": "KeyError",
        "error": "no",
        "fingerprint": "f",
    }
    rows = bronze(
        spark,
        published("m-1"),
        delivered("m-1", at(2), "retried", **trouble),
        delivered(
            "m-1", at(9), "dead-lettered", attempt=2, due_at=at(8), redeliveries=1, **trouble
        ),
    )
    life = {**LIFE, **trouble, "settled_at": at(9), "deliveries": 2, "attempts": 2}
    life |= {"redeliveries": 1, "outcome": "dead-lettered", "duration": 1.0, "latency": 9.0}
    assertDataFrameEqual(lifecycle(rows), frame(spark, LIFECYCLE, [life]))


def test_what_is_being_retried_has_no_latency_yet(spark: SparkSession) -> None:
    (life,) = lives(spark, published("m-1"), delivered("m-1", outcome="retried"))
    assert (life["outcome"], life["latency"], life["wait"]) == ("retried", None, 1.5)


def test_a_delay_is_no_wait(spark: SparkSession) -> None:
    delayed: dict[str, Any] = {"due_at": at(3600)}
    (life,) = lives(spark, published("m-1", **delayed), delivered("m-1", at(3602), **delayed))
    assert (life["arrived_at"], life["wait"], life["latency"]) == (at(3600), 1.5, 2.0)


def test_without_its_first_delivery_nobody_knows_how_long_it_waited(spark: SparkSession) -> None:
    (life,) = lives(spark, published("m-1"), delivered("m-1", at(9), attempt=2, due_at=at(8)))
    assert (life["wait"], life["latency"]) == (None, 9.0)


def test_a_clock_that_is_a_little_behind_gives_no_wait(spark: SparkSession) -> None:
    (life,) = lives(spark, published("m-1"), delivered("m-1", at(-0.3), duration=0.1))
    assert (life["wait"], life["latency"]) == (0.0, 0.0)


def test_a_clock_gone_backwards_tells_nothing(spark: SparkSession) -> None:
    (life,) = lives(spark, published("m-1"), delivered("m-1", at(-3600)))
    assert (life["wait"], life["latency"]) == (None, None)


def test_a_message_of_unknown_age_is_followed_all_the_same(spark: SparkSession) -> None:
    (life,) = lives(spark, delivered("m-1", published_at=None))
    assert (life["published_at"], life["arrived_at"]) == (None, at(2))
    assert (life["outcome"], life["wait"]) == ("succeeded", 0.0)


def test_sent_back_from_the_dead_letters_it_ends_as_it_ended_then(spark: SparkSession) -> None:
    (life,) = lives(
        spark,
        delivered("m-1", at(5), "dead-lettered", attempt=2),
        delivered("m-1", at(100), "succeeded", attempt=1, due_at=at(99)),
    )
    assert (life["outcome"], life["settled_at"], life["wait"]) == ("succeeded", at(100), None)


def test_a_replay_is_a_life_of_its_own(spark: SparkSession) -> None:
    found = lives(spark, delivered("m-1"), delivered("m-1", at(50), replay_id="r-1"))
    assert sorted((each["replay_id"] or "", each["deliveries"]) for each in found) == [
        ("", 1),
        ("r-1", 1),
    ]


def test_what_a_tap_captured_is_no_delivery(spark: SparkSession) -> None:
    assert lives(spark, row("captured", "m-1", at(), queue="tap", published_at=at())) == []
