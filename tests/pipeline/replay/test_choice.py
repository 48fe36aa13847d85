"""Which rows of an archive are messages that are meant, and where they go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from queuecraft import ConfigError
from queuecraft.observers.journal.row import Row
from queuecraft.pipeline.columns import batch_of
from queuecraft.pipeline.replay.choice import addressed, chosen
from queuecraft.pipeline.replay.question import Question
from tests.pipeline.replay.scene import NOON, captured

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame(spark: SparkSession, rows: Sequence[Row]) -> DataFrame:
    entries = [(row, None if row.payload is None else row.payload.encode()) for row in rows]
    return spark.createDataFrame(pa.Table.from_batches([batch_of(entries)]))


def found(spark: SparkSession, rows: Sequence[Row], question: Question) -> list[tuple[Any, ...]]:
    """Ids, and where they go."""
    messages = addressed(chosen(frame(spark, rows), question), question)
    columns = ("message_id", "queue", "exchange", "event")
    return sorted(
        (tuple(row[name] for name in columns) for row in messages.select(*columns).collect()),
        key=str,
    )


def ids(spark: SparkSession, rows: Sequence[Row], **asked: Any) -> list[str]:
    return [each[0] for each in found(spark, rows, Question(**asked))]


def published(number: int, **more: Any) -> Row:
    return captured(number, **{"kind": "published", "queue": None, **more})


def delivered(number: int, queue: str, outcome: str = "succeeded", **more: Any) -> Row:
    given = {"kind": "delivered", "queue": queue, "outcome": outcome, "attempt": 1, "payload": None}
    return captured(number, **{**given, **more})


def dead_letter(number: int, queue: str = "billing", **more: Any) -> Row:
    """As it is captured from a dead-letter queue."""
    story = {"x-original-queue": queue, "x-original-routing-key": "order.placed", "x-error": "no"}
    given = {"queue": f"{queue}.dlq", "exchange": None, "event": f"{queue}.dlq", "headers": story}
    return captured(number, **{**given, **more})


def test_each_message_is_chosen_once_and_as_it_was_captured_if_it_was(spark: SparkSession) -> None:
    rows = [
        published(1, payload='"published"'),
        captured(1, payload='"captured"'),
        captured(1, queue="tap-2", payload='"captured"'),
        captured(1, payload=None),
        published(2, payload='"published"'),
        delivered(3, "billing"),
        dead_letter(4),
    ]
    messages = chosen(frame(spark, rows), Question()).select("message_id", "queue", "payload")
    assert sorted(
        (row["message_id"], row["queue"], bytes(row["payload"])) for row in messages.collect()
    ) == [("m-00001", "tap", b'"captured"'), ("m-00002", None, b'"published"')]


def test_filters_narrow_it_down_together(spark: SparkSession) -> None:
    rows = [
        captured(1, key="a", priority=1),
        captured(2, key="a", event="order.item.added", priority=2),
        captured(3, key="b", priority=3, payload='{"total": 250}'),
        captured(4, event="user.created", replay_id="r-0"),
        delivered(3, "billing"),
        delivered(1, "billing", "retried", fingerprint="f-1"),
    ]
    noon = datetime.fromtimestamp(NOON, UTC)
    assert ids(spark, rows) == ["m-00001", "m-00002", "m-00003"]
    assert ids(spark, rows, replayed=True, event="user.*") == ["m-00004"]
    assert ids(spark, rows, event="order.*") == ["m-00001", "m-00003"]
    assert ids(spark, rows, key="a", event="order.#") == ["m-00001", "m-00002"]
    assert ids(spark, rows, ids=("m-00002", "m-00004")) == ["m-00002"]
    assert ids(spark, rows, fingerprint="f-1") == ["m-00001"]
    assert ids(spark, rows, since=noon.replace(second=2)) == ["m-00002", "m-00003"]
    assert ids(spark, rows, until=noon.replace(second=2)) == ["m-00001"]
    total = "try_cast(get_json_object(cast(payload as string), '$.total') as double) > 100"
    assert ids(spark, rows, where=total) == ["m-00003"]
    assert ids(spark, rows, where="priority > 1", event="order.placed") == ["m-00003"]


def test_a_wrong_expression_is_told_with_the_columns_there_are(spark: SparkSession) -> None:
    rows = [captured(1)]
    for where in ("prioritty > 1", "priority >", "sum(priority) > 1", "key + "):
        with pytest.raises(ConfigError, match=r"where='.*the columns are kind, at, message_id"):
            ids(spark, rows, where=where)


def test_messages_go_where_they_came_from_unless_it_is_said(spark: SparkSession) -> None:
    rows = [
        captured(1),
        captured(2, exchange=None, queue="billing"),
        published(3, exchange=None, queue="audit"),
        delivered(1, "billing"),
    ]
    assert found(spark, rows, Question()) == [
        ("m-00001", None, "events", "order.placed"),
        ("m-00002", "billing", None, "order.placed"),
        ("m-00003", "audit", None, "order.placed"),
    ]
    assert found(spark, rows, Question(to="new", ids=("m-00001",))) == [
        ("m-00001", "new", None, "order.placed")
    ]
    assert found(spark, rows, Question(to_event="order.again", ids=("m-00001",))) == [
        ("m-00001", None, "events", "order.again")
    ]
    # Chosen by a queue, a message is for that queue, and not for all the others it went to.
    assert found(spark, rows, Question(queue="billing")) == [
        ("m-00001", "billing", None, "order.placed"),
        ("m-00002", "billing", None, "order.placed"),
    ]


def test_dead_letters_go_back_to_the_queues_that_failed_them(spark: SparkSession) -> None:
    failed: dict[str, Any] = {"outcome": "dead-lettered", "at": NOON + 100}
    rows = [
        dead_letter(1),
        delivered(1, "billing", **failed),
        captured(2),
        delivered(2, "billing", **failed),
        delivered(2, "audit", **failed, fingerprint="f-1"),
        captured(3),
        delivered(3, "billing", **failed),
        delivered(3, "billing", at=NOON + 200, attempt=1, replay_id="r-0"),  # sent back since
        delivered(4, "billing", "retried"),
        delivered(5, "audit", **failed, payload='"its own"'),
    ]
    asked = Question(source="dead-letters")
    assert found(spark, rows, asked) == [
        ("m-00001", "billing", None, "order.placed"),
        ("m-00002", "audit", None, "order.placed"),
        ("m-00002", "billing", None, "order.placed"),
        ("m-00005", "audit", None, "order.placed"),
    ]
    assert [each[:2] for each in found(spark, rows, replace(asked, fingerprint="f-1"))] == [
        ("m-00002", "audit")
    ]
    assert [each[1] for each in found(spark, rows, replace(asked, queue="billing"))] == [
        "billing",
        "billing",
    ]
    payloads = {
        row["message_id"]: bytes(row["payload"])
        for row in chosen(frame(spark, rows), asked).select("message_id", "payload").collect()
    }
    assert payloads == {
        "m-00001": b'{"n":1}',
        "m-00002": b'{"n":2}',
        "m-00005": b'"its own"',
    }


def test_a_dead_letter_goes_as_a_capture_has_it_and_not_as_a_journal_has_masked_it(
    spark: SparkSession,
) -> None:
    masked: dict[str, Any] = {"payload": '{"card":"***"}', "headers": {"token": "***"}}
    whole: dict[str, Any] = {"payload": '{"card":"4111"}', "headers": {"token": "t"}}
    rows = [
        captured(1, **whole),
        published(1, **masked),
        delivered(1, "billing", "dead-lettered", **masked),
        published(2, payload='"published"'),
        delivered(2, "billing", "dead-lettered", payload='"its own"'),
        published(3, payload='"published"'),
        delivered(3, "billing", "dead-lettered"),
        captured(4, payload=None),
        delivered(4, "billing", "dead-lettered", payload='"its own"'),
        delivered(5, "billing", "dead-lettered"),
    ]
    asked = Question(source="dead-letters", since=datetime.fromtimestamp(NOON, UTC))
    messages = chosen(frame(spark, rows), asked).orderBy("message_id").collect()
    assert [(row["message_id"], row["queue"], row["payload"]) for row in messages] == [
        ("m-00001", "billing", b'{"card":"4111"}'),
        ("m-00002", "billing", b'"its own"'),
        ("m-00003", "billing", b'"published"'),
        ("m-00004", "billing", b'"its own"'),
        ("m-00005", "billing", None),
    ]
    assert messages[0]["headers"] == {"token": "t"}


def test_a_message_that_several_queues_failed_goes_once_to_a_target_that_is_named(
    spark: SparkSession,
) -> None:
    failed: dict[str, Any] = {"outcome": "dead-lettered", "fingerprint": "f-1"}
    rows = [
        captured(1),
        delivered(1, "billing", **failed),
        delivered(1, "audit", **failed),
        dead_letter(2, "billing"),
        dead_letter(2, "audit"),
    ]
    asked = Question(source="dead-letters")
    assert [each[:2] for each in found(spark, rows, replace(asked, to="new"))] == [
        ("m-00001", "new"),
        ("m-00002", "new"),
    ]
    assert [each[0] for each in found(spark, rows, replace(asked, to_event="order.again"))] == [
        "m-00001",
        "m-00002",
    ]
    # The command that triage prints: one group of one queue, and back to it alone.
    group = replace(asked, fingerprint="f-1", queue="billing", event="order.placed")
    assert [each[:2] for each in found(spark, rows, group)] == [("m-00001", "billing")]


def test_messages_without_ids_stay_apart_and_get_the_same_ids_again(spark: SparkSession) -> None:
    rows = [captured(n, message_id=None if n % 2 else "") for n in range(4)]
    once, again = ids(spark, rows), ids(spark, list(reversed(rows)))
    assert len(set(once)) == 4
    assert once == again
