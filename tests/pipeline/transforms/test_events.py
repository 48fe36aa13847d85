"""Each row once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.testing import assertDataFrameEqual

from queuecraft.pipeline.transforms.events import events
from queuecraft.pipeline.transforms.messages import messages
from tests.pipeline.rows import at, delivered, published, row
from tests.pipeline.transforms.frames import bronze, segment, silver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_row_of_bronze_remembers_the_segment_it_came_in(spark: SparkSession) -> None:
    rows = messages(segment(spark, published("m-1")))
    assertDataFrameEqual(rows.drop("date", "hour"), bronze(spark, published("m-1")))


def test_what_came_twice_is_there_once(spark: SparkSession) -> None:
    rows = [published("m-1"), published("m-1", queue="billing", exchange=None), delivered("m-1")]
    twice = bronze(spark, *rows, *rows)
    assertDataFrameEqual(events(twice), silver(spark, *rows))


def test_rows_that_differ_in_their_key_are_not_the_same(spark: SparkSession) -> None:
    rows = [
        delivered("m-1"),
        delivered("m-1", attempt=2),
        delivered("m-1", queue="audit"),
        delivered("m-1", replay_id="r-1"),
        delivered("m-2"),
        published("m-1"),
    ]
    assertDataFrameEqual(events(bronze(spark, *rows)), silver(spark, *rows))


def test_of_two_with_the_same_key_the_newest_is_kept(spark: SparkSession) -> None:
    before, after = delivered("m-1", at(1), "dead-lettered"), delivered("m-1", at(2), "succeeded")
    assertDataFrameEqual(events(bronze(spark, before, after)), silver(spark, after))
    assertDataFrameEqual(events(bronze(spark, after, before)), silver(spark, after))


def test_of_a_captured_message_that_came_twice_the_first_is_kept(spark: SparkSession) -> None:
    first, again = (row("captured", "m-1", at(n), published_at=at()) for n in (1, 2))
    assertDataFrameEqual(events(bronze(spark, again, first)), silver(spark, first))


def test_the_dead_letters_that_several_queues_have_of_a_message_are_all_kept(
    spark: SparkSession,
) -> None:
    rows = [
        row("captured", "m-1", at(1), queue="morgue", headers={"x-original-queue": queue})
        for queue in ("billing", "audit")
    ]
    assertDataFrameEqual(events(bronze(spark, *rows, *rows)), silver(spark, *rows))


def test_which_of_two_from_the_same_instant_is_kept_is_always_the_same(spark: SparkSession) -> None:
    one, other = delivered("m-1", outcome="succeeded"), delivered("m-1", outcome="expired")
    assertDataFrameEqual(
        events(bronze(spark, one, other)), events(bronze(spark, other, one).repartition(2))
    )


def test_all_rows_of_a_message_are_born_in_the_same_hour(spark: SparkSession) -> None:
    edge = at(-0.0004)  # to the millisecond, which is what brokers carry, this is noon
    rows = segment(
        spark,
        published("m-1", at(0.2), published_at=edge),
        delivered("m-1", at(hours=30), published_at=at()),
        delivered("foreign", at(hours=2), published_at=None),
        delivered("mad", at(hours=3), published_at=at(hours=-1_000_000)),
    )
    born = {each["message_id"]: set[tuple[str, int]]() for each in rows.collect()}
    for each in messages(rows).collect():
        born[each["message_id"]].add((str(each["date"]), each["hour"]))
    assert born == {
        "m-1": {("2026-03-02", 12)},
        "foreign": {("2026-03-02", 14)},
        "mad": {("2026-03-02", 15)},
    }
