"""What a lake has sent again as it was, and has still."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from queuecraft.drivers.base import Delivery, Outgoing
from queuecraft.pipeline.horizon import move_horizon
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.replay.ledger import Ledger
from queuecraft.pipeline.replay.plan import Line, Plan
from queuecraft.pipeline.replay.question import Question
from queuecraft.pipeline.replay.table import PLAN
from queuecraft.pipeline.replayed import Replayed
from queuecraft.pipeline.segments import make_folder

FIRST = datetime(2026, 1, 1, 12, tzinfo=UTC)  # when the oldest of a plan was published
HOUR = timedelta(hours=1)
AGAIN = Delivery(Outgoing(b"{}", "m-1", headers={"x-replay-id": "r-1"}), "tap")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.at(tmp_path / "lake")


def plan(lake: Lake, *firsts: datetime | None, question: Question | None = None) -> Ledger:
    """A replay of a message, with a line for each time."""
    ledger = Ledger(lake.replays / "r-1")
    make_folder(ledger.chunk(0))
    rows = [{"message_id": "m-1", "event": "", "payload": b"{}"}]
    pq.write_table(pa.Table.from_pylist(rows, PLAN.arrow), ledger.chunk(0) / "part-0.parquet")
    lines = tuple(
        Line(event=None, queue="tap", exchange=None, messages=1, size=2, first=first, last=first)
        for first in firsts
    )
    planned_at = FIRST + 24 * HOUR
    ledger.keep(Plan(id="r-1", question=question or Question(), planned_at=planned_at, lines=lines))
    return ledger


@pytest.mark.parametrize(
    "story",
    [{"x-original-queue": "billing"}, {"x-death": [{"queue": "tap", "reason": "rejected"}]}],
    ids=lambda story: next(iter(story)),
)
def test_what_has_failed_since_is_archived_with_its_story(
    lake: Lake, story: dict[str, Any]
) -> None:
    plan(lake, FIRST)
    headers = {"x-replay-id": "r-1", **story}
    failed = Delivery(Outgoing(b"{}", "m-1", headers=headers), "billing.dlq")
    assert Replayed(lake).without([AGAIN, failed]) == [failed]


def expired(lake: Lake, before: datetime) -> None:
    move_horizon(lake, before, before + HOUR)


@pytest.mark.parametrize(
    ("before", "here"), [(None, True), (FIRST - HOUR, True), (FIRST, True), (FIRST + HOUR, False)]
)
def test_what_may_have_expired_is_archived(lake: Lake, before: datetime | None, here: bool) -> None:
    plan(lake, FIRST + 5 * HOUR, FIRST)
    if before is not None:
        expired(lake, before)
    assert Replayed(lake).without([AGAIN]) == ([] if here else [AGAIN])


def test_a_capture_that_goes_on_hears_that_something_expires(lake: Lake) -> None:
    plan(lake, FIRST)
    replayed = Replayed(lake)
    assert replayed.without([AGAIN]) == []
    expired(lake, FIRST + HOUR)
    assert replayed.without([AGAIN]) == [AGAIN]


@pytest.mark.parametrize("firsts", [(), (None,), (FIRST, None)], ids=str)
def test_of_messages_without_a_time_nobody_knows_whether_they_expired(
    lake: Lake, firsts: tuple[datetime | None, ...]
) -> None:
    plan(lake, *firsts)
    assert Replayed(lake).without([AGAIN]) == []
    expired(lake, FIRST - HOUR)
    assert Replayed(lake).without([AGAIN]) == [AGAIN]


def test_the_times_of_what_is_kept_apart_say_nothing(lake: Lake) -> None:
    plan(lake, FIRST, question=Question(quarantined=True))
    assert Replayed(lake).without([AGAIN]) == []
    expired(lake, FIRST - HOUR)
    assert Replayed(lake).without([AGAIN]) == [AGAIN]


def test_a_time_after_the_plan_says_nothing(lake: Lake) -> None:
    plan(lake, FIRST + 48 * HOUR)
    expired(lake, FIRST - HOUR)
    assert Replayed(lake).without([AGAIN]) == [AGAIN]


def test_where_nobody_knows_what_expired_all_is_archived(lake: Lake) -> None:
    plan(lake, FIRST)
    lake.horizon.write_text("{")
    assert Replayed(lake).without([AGAIN]) == [AGAIN]


@pytest.mark.parametrize(
    ("there", "instead"),
    [(b'"id": "r-1"', b'"id": "r-\xff"'), (b"Z", b""), (b"{", b"")],
    ids=["no UTF-8", "times without a zone", "no JSON"],
)
def test_what_is_of_a_plan_that_is_damaged_is_archived(
    lake: Lake, there: bytes, instead: bytes
) -> None:
    file = plan(lake, FIRST).folder / "plan.json"
    whole = file.read_bytes()
    assert there in whole
    file.write_bytes(whole.replace(there, instead))
    expired(lake, FIRST - HOUR)
    assert Replayed(lake).without([AGAIN]) == [AGAIN]
