"""Dead letters with the same cause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.testing import assertDataFrameEqual

from queuecraft.model.fingerprint import fingerprint
from queuecraft.pipeline.schemas import DEAD_LETTERS
from queuecraft.pipeline.transforms.dead_letters import dead_letters
from queuecraft.pipeline.transforms.deaths import deaths
from tests.pipeline.rows import at, delivered, row
from tests.pipeline.transforms.frames import bronze, collected, frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def dead(message_id: str, seconds: float, **more: Any) -> dict[str, Any]:
    cause = {"reason": "error", "error_type": "KeyError", "error": f"order '{message_id}' unknown"}
    return delivered(message_id, at(seconds), "dead-lettered", **{**cause, **more})


def captured(message_id: str, seconds: float, **more: Any) -> dict[str, Any]:
    usual = {"queue": "billing.dlq", "event": "order.placed", "reason": "error"}
    return row("captured", message_id, at(seconds), **{**usual, **more})


def groups(spark: SparkSession, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    return collected(dead_letters(deaths(bronze(spark, *rows))))


def test_failures_with_the_same_cause_are_one_group(spark: SparkSession) -> None:
    rows = bronze(
        spark,
        *(dead(f"m-{number}", number) for number in range(7)),
        dead("m-9", 3, queue="audit"),
        delivered("m-10"),
    )
    name = fingerprint("KeyError", "order 'm-0' unknown")
    group: dict[str, Any] = {
        "fingerprint": name,
        "queue": "billing",
        "event": "order.placed",
        "reason": "error",
    }
    group |= {"error_type": "KeyError", "error": "order 'm-6' unknown", "count": 7}
    group |= {"first_seen": at(), "last_seen": at(6)}
    group |= {"message_ids": ["m-6", "m-5", "m-4", "m-3", "m-2"]}
    audit = {**group, "queue": "audit", "error": "order 'm-9' unknown", "count": 1}
    audit |= {"first_seen": at(3), "last_seen": at(3), "message_ids": ["m-9"]}
    assertDataFrameEqual(dead_letters(deaths(rows)), frame(spark, DEAD_LETTERS, [group, audit]))


def test_a_fingerprint_that_is_known_is_kept(spark: SparkSession) -> None:
    (group,) = groups(spark, dead("m-1", 1, fingerprint="abc"))
    assert group["fingerprint"] == "abc"


def test_without_an_error_the_reason_is_the_cause_as_in_the_core(spark: SparkSession) -> None:
    (group,) = groups(spark, dead("m-1", 1, error_type=None, error=None, reason="crash-loop"))
    assert group["fingerprint"] == fingerprint("crash-loop")


def test_a_captured_dead_letter_belongs_to_the_queue_that_failed_it(spark: SparkSession) -> None:
    trace = 'File "/srv/billing.py", line 7, in charge'
    (group,) = groups(
        spark,
        captured(
            "m-1",
            9,
            error_type="KeyError",
            error="no",
            headers={"x-original-queue": "billing", "x-traceback": trace},
        ),
    )
    assert group["queue"] == "billing"
    assert group["fingerprint"] == fingerprint("KeyError", "no", trace)


def test_one_that_was_both_delivered_and_captured_counts_once(spark: SparkSession) -> None:
    (group,) = groups(
        spark,
        dead("m-1", 1, fingerprint="abc"),
        captured("m-1", 9, headers={"x-original-queue": "billing"}, fingerprint="abc"),
    )
    assert (group["count"], group["last_seen"]) == (1, at(1))


def test_what_a_tap_captured_of_messages_in_good_health_is_no_death(spark: SparkSession) -> None:
    assert groups(spark, row("captured", "m-1", at(), queue="tap")) == []
