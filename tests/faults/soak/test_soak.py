"""Two minutes of the soak, and that it would see a leak and a loss."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.faults.matrix.__main__ import children
from tests.faults.matrix.brokers import Embedded, RabbitMQQuorum, RedisStream, Row
from tests.faults.matrix.faults import FAULTS
from tests.faults.matrix.tally import Tally
from tests.faults.nursery import Nursery
from tests.faults.soak.course import TROUBLES, Outcome, soak
from tests.faults.soak.page import Run, json, page, read
from tests.faults.soak.vitals import Growth, Vitals

SECONDS = float(os.environ.get("QUEUECRAFT_SOAK_SECONDS", "120"))


@pytest.fixture(scope="module")
def nursery() -> Generator[Nursery]:
    with children() as nursery:
        yield nursery


@pytest.mark.timeout(SECONDS + 240)
async def test_two_minutes_of_load_and_faults_lose_nothing_and_leave_nothing_open(
    nursery: Nursery, tmp_path: Path
) -> None:
    rows: list[Row] = [Embedded(), RedisStream(), RabbitMQQuorum()]
    try:
        for row in rows:
            await asyncio.to_thread(row.start)
        outcomes = await asyncio.gather(
            *(
                soak(row, nursery, seconds=SECONDS, hear=lambda passed: None, keep=tmp_path)
                for row in rows
            )
        )
    finally:
        for row in rows:
            row.close()
    assert {each.broker: each.complaints for each in outcomes if each.complaints} == {}
    for outcome in outcomes:
        assert outcome.tally is not None
        assert outcome.tally.acknowledged > 10 * SECONDS
        assert outcome.troubles > 0


def vitals(memory: float = 50.0, descriptors: int = 20, threads: int = 5) -> Vitals:
    return Vitals(memory=memory, descriptors=descriptors, threads=threads)


def test_this_process_can_be_looked_at() -> None:
    found = Vitals.of(os.getpid())
    assert found.memory > 1
    assert found.descriptors >= 3
    assert found.threads >= 1


def test_what_grows_all_the_time_is_told() -> None:
    leaking = [vitals(50 + at / 2, 20 + at // 3, 5 + at // 8) for at in range(60)]
    assert Growth.of("worker", leaking).complaints == [
        "worker: memory 64.8 → 74.8 MiB",
        "worker: descriptors 32 → 39",
        "worker: threads 9 → 12",
    ]


def test_what_grows_at_first_and_then_no_more_is_no_leak() -> None:
    warming = [vitals(min(50, 10 + 4 * at), min(20, at)) for at in range(60)]
    assert Growth.of("worker", warming).complaints == []


def reconnecting(rounds: int, lacking: int, leaked: int = 0) -> list[Vitals]:
    """Of each ten looks at a worker on Kafka, one while it reconnects, and so many after that for
    which it lacks a client that it has not needed yet."""
    moment = vitals(descriptors=15, threads=9)
    without = vitals(descriptors=50 + 5 * leaked, threads=31 + 4 * leaked)
    whole = vitals(descriptors=55 + 5 * leaked, threads=35 + 4 * leaked)
    return [moment, *[without] * lacking, *[whole] * (9 - lacking)] * rounds


def test_a_client_that_is_there_now_less_and_now_more_of_the_time_is_no_leak() -> None:
    looks = [*reconnecting(20, lacking=6), *reconnecting(10, lacking=2)]
    assert Growth.of("worker", looks).complaints == []


def test_a_client_that_stays_behind_is_a_leak_also_beside_one_that_comes_and_goes() -> None:
    looks = [*reconnecting(22, lacking=2), *reconnecting(8, lacking=6, leaked=1)]
    assert Growth.of("worker", looks).complaints == [
        "worker: descriptors 55 → 60",
        "worker: threads 35 → 39",
    ]


def test_a_loss_and_what_is_left_over_are_told() -> None:
    tally = Tally(
        acknowledged=9,
        handled=8,
        lost=["7-1"],
        twice=0,
        begun_again=0,
        dead=0,
        unexplained=["7-2 (crash-loop)"],
        out_of_nowhere=[],
        recovered=None,
        caught_up=None,
    )
    outcome = Outcome(broker="embedded", seconds=1.0, tally=tally, left=["1 ready in jobs"])
    assert outcome.complaints == [
        "1 lost: 7-1",
        "dead without a reason: 7-2 (crash-loop)",
        "left over: 1 ready in jobs",
    ]


def outcome(**more: Any) -> Outcome:
    return Outcome(
        broker="embedded",
        seconds=60,
        troubles=7,
        waiting=12,
        growth=[Growth(name="worker", before=vitals(), after=vitals(**more))],
    )


def run(*outcomes: Outcome) -> Run:
    date = datetime(2026, 1, 2, tzinfo=UTC)
    return Run(date=date, minutes=30.0, versions={"SQLite": "3.54"}, outcomes=outcomes)


def test_the_page_shows_each_process() -> None:
    text = page(run(outcome()))
    assert "| worker | 50.0 → 50.0 | 20 → 20 | 5 → 5 |" in text
    assert "| SQLite | 3.54 |" in text
    assert "Run on 2026-01-02, for 30 minutes." in text


@pytest.mark.parametrize(
    ("memory", "told"), [(49.0, "0.0"), (50.0, "0.0"), (50.3, "0.3"), (50.32, "0.4"), (51.1, "1.1")]
)
def test_the_page_says_by_how_much_a_process_grew_at_the_most(memory: float, told: str) -> None:
    text = page(run(outcome(memory=memory), outcome(descriptors=19, threads=6)))
    assert f"no process grew by more than {told} MiB, 0 files or 1 threads." in text
    assert "nothing grew" not in text


def test_the_page_says_of_each_trouble_what_it_is_here() -> None:
    text = page(run(outcome()))
    for each in TROUBLES.values():
        assert f"\n- **{each.name}.** {each.what}\n" in text
    assert len({each.what for each in TROUBLES.values()}) == len(TROUBLES)
    assert TROUBLES.keys() <= FAULTS.keys()


def test_the_page_says_that_publishers_wait() -> None:
    text = page(run(outcome()))
    assert "Publishers wait while more than 1,000 messages do, until fewer than 200 are" in text


def test_the_page_says_what_did_not_hold() -> None:
    text = page(run(outcome(memory=90.0)))
    assert "**In this run not everything held**" in text
    assert "no process grew" not in text


def test_the_page_can_be_made_again_from_json() -> None:
    found = run(outcome(), outcome(memory=90.0))
    assert page(read(json(found))) == page(found)
