"""Dead letters in a lake, by their cause."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from queuecraft.pipeline.jobs.triage import LARGEST, Example, Trouble, triage
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.report.scope import Scope
from queuecraft.pipeline.schemas import DEAD_LETTERS, EVENTS
from tests.pipeline.report.written import at, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKED = gzip.compress(b'{"id": "m-9"}', mtime=0)


def delivered(id: str, minutes: float, outcome: str, **known: Any) -> dict[str, Any]:
    return {
        "kind": "delivered",
        "message_id": id,
        "queue": "billing",
        "event": "order.placed",
        "at": at(minutes),
        "outcome": outcome,
        **known,
    }


def died(id: str, minutes: float, fingerprint: str, **known: Any) -> dict[str, Any]:
    given = {"reason": "handler-error", "error_type": "KeyError", "error": "'id'", **known}
    return delivered(id, minutes, "dead-lettered", fingerprint=fingerprint, **given)


def group(fingerprint: str, count: int, first: float, last: float, *ids: str) -> dict[str, Any]:
    return {
        "fingerprint": fingerprint,
        "queue": "billing",
        "event": "order.placed",
        "reason": "handler-error",
        "error_type": "KeyError",
        "error": "'id'",
        "count": count,
        "first_seen": at(first),
        "last_seen": at(last),
        "message_ids": list(ids),
    }


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake.at(tmp_path_factory.mktemp("lake"))
    write(
        lake,
        DEAD_LETTERS,
        [
            group("old", 900, -500, -400, "gone"),
            group("sent-back", 3, 1, 3, "m-3", "m-2", "m-1"),
            group("new", 2, 4, 30, "m-9", "m-8"),
        ],
    )
    published = {"kind": "published", "event": "order.placed", "key": "customer-7"}
    write(
        lake,
        EVENTS,
        [
            *(died(f"m-{n}", n, "sent-back") for n in (1, 2, 3)),
            delivered("m-1", 9, "succeeded", replay_id="r-1"),
            delivered("m-2", 9, "retried", replay_id="r-1"),
            delivered("m-3", 0, "succeeded", replay_id="r-0"),  # before it died
            {**published, "message_id": "m-3", "at": at(0), "payload": b"x" * (LARGEST + 5)},
            died("m-8", 4, "new", headers={"tenant": "t1"}),
            died("m-9", 30, "new"),
            {
                **published,
                "message_id": "m-9",
                "at": at(0),
                "payload": PACKED,
                "content_encoding": "gzip",
                "content_type": "application/json",
                "headers": {"tenant": "t9"},
                "typed_headers": '{"n": 1}',
            },
        ],
    )
    return lake


@pytest.fixture(scope="module")
def troubles(spark: SparkSession, lake: Lake) -> dict[str, Trouble]:
    found = triage(spark, lake)
    assert found.groups == 3
    return {each.group.fingerprint: each for each in found.troubles}


def test_the_newest_trouble_comes_first_and_not_the_largest(troubles: dict[str, Trouble]) -> None:
    assert list(troubles) == ["new", "sent-back", "old"]
    assert [each.group.count for each in troubles.values()] == [2, 3, 900]


def test_the_example_is_what_was_archived_of_the_newest_message(
    troubles: dict[str, Trouble],
) -> None:
    assert troubles["new"].example == Example(
        message_id="m-9",
        key="customer-7",
        headers={"tenant": "t9"},
        typed_headers='{"n": 1}',
        content_type="application/json",
        payload=b'{"id": "m-9"}',
        size=len(PACKED),
    )
    assert troubles["old"].example is None


def test_a_huge_payload_is_cut(troubles: dict[str, Trouble]) -> None:
    example = troubles["sent-back"].example
    assert example is not None
    assert example.payload == b"x" * LARGEST
    assert example.size == LARGEST + 5


def test_messages_that_succeeded_after_they_died_have_recovered(
    troubles: dict[str, Trouble],
) -> None:
    assert (troubles["sent-back"].recovered, troubles["sent-back"].open) == (1, 2)
    assert (troubles["new"].recovered, troubles["new"].open) == (0, 2)


@pytest.mark.parametrize("scope", [Scope(), Scope(since=at(0))], ids=str)
def test_each_death_of_a_message_that_succeeded_in_the_end_is_made_good(
    spark: SparkSession, tmp_path: Path, scope: Scope
) -> None:
    lake = Lake.at(tmp_path)
    write(lake, DEAD_LETTERS, [group("bug", 4, 1, 6, "m-2", "m-1")])
    write(
        lake,
        EVENTS,
        [
            died("m-1", 1, "bug"),
            died("m-1", 2, "bug", replay_id="r-1"),
            delivered("m-1", 3, "succeeded", replay_id="r-2"),
            died("m-2", 4, "bug"),
            delivered("m-2", 5, "succeeded", replay_id="r-3"),
            died("m-2", 6, "bug", replay_id="r-4"),  # a replay of what was well
        ],
    )
    (bug,) = triage(spark, lake, scope).troubles
    assert (bug.group.count, bug.recovered, bug.open) == (4, 3, 1)


def test_what_recovered_before_a_time_hides_nothing_that_is_open_since(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake.at(tmp_path)
    long_ago = [died(f"m-{n}", n, "bug") for n in range(5)]
    healed = [delivered(f"m-{n}", 20, "succeeded", replay_id="r-1") for n in range(5)]
    write(lake, EVENTS, [*long_ago, *healed, died("m-8", 11, "bug"), died("m-9", 12, "bug")])
    write(lake, EVENTS, [delivered("m-9", 30, "succeeded", replay_id="r-2")])
    (bug,) = triage(spark, lake, Scope(since=at(10), until=at(15))).troubles
    assert (bug.group.count, bug.recovered, bug.open) == (2, 1, 1)


def test_a_dead_letter_that_only_a_capture_has_seen_recovers_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake.at(tmp_path)
    letter = died("m-1", 1, "bug", headers={"x-original-queue": "billing"})
    write(
        lake,
        EVENTS,
        [
            {**letter, "kind": "captured", "outcome": None, "queue": "billing.dlq"},
            delivered("m-1", 2, "succeeded", replay_id="r-1"),
        ],
    )
    (bug,) = triage(spark, lake, Scope(since=at(0))).troubles
    assert (bug.group.queue, bug.group.count, bug.open) == ("billing", 1, 0)


def test_a_time_is_counted_by_its_events(spark: SparkSession, lake: Lake) -> None:
    found = triage(spark, lake, Scope(since=at(2), until=at(5)), limit=1)
    (newest,) = found.troubles
    assert (newest.group.fingerprint, newest.group.count) == ("new", 1)
    assert newest.group.message_ids == ("m-8",)
    assert newest.example is not None
    assert (newest.example.payload, newest.example.headers) == (None, {"tenant": "t1"})
    assert found.groups == 2


def test_a_lake_without_dead_letters_has_no_trouble(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    assert triage(spark, lake).troubles == ()
    (lake.tables / EVENTS.name).mkdir(parents=True)  # all of it has expired
    assert triage(spark, lake, Scope(since=at(0))).troubles == ()
