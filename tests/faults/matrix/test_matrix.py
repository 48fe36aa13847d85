"""The matrix tells a loss from a success, and a cell of each broker holds."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from queuecraft.drivers.base import QueueInfo
from tests.brokers.fixtures import do_without
from tests.brokers.installation import Unavailable
from tests.brokers.rabbitmq import RabbitMQ
from tests.faults import page
from tests.faults.matrix.brokers import (
    ROWS,
    Embedded,
    Kafka,
    Place,
    RabbitMQClassic,
    RabbitMQQuorum,
    RedisList,
    RedisStream,
    Row,
)
from tests.faults.matrix.cell import WORKERS, run
from tests.faults.matrix.faults import FAULTS
from tests.faults.matrix.report import Report, json, markdown, read
from tests.faults.matrix.result import Result
from tests.faults.matrix.tally import SECOND, Tally, count, left_over
from tests.faults.nursery import Nursery
from tests.faults.page import Line

FEW = 200


class Ledger:
    """Lines as processes write them, a second apart."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self._clock = itertools.count(SECOND, SECOND)

    def write(self, what: page.What, *ids: str, reason: str = "", temper: str = "") -> int:
        for id in ids or ("",):
            at = next(self._clock)
            self.lines.append(Line(at, 1, what, id, reason=reason, temper=temper))
        return self.lines[-1].at

    def published(self, *ids: str, temper: str = "ok") -> None:
        self.write("publishing", *ids, temper=temper)
        self.write("published", *ids)

    def count(self, *, end: int = 0, new_only: bool = False) -> Tally:
        return count(self.lines, end=end, new_only=new_only)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def report_of(*results: Result) -> Report:
    return Report(
        date=datetime(2030, 1, 31, tzinfo=UTC),
        messages=FEW,
        seconds=60,
        versions={"QueueCraft": "1.2.3"},
        results=results,
    )


def cell(tally: Tally | None = None, **more: object) -> Result:
    return msgspec.convert(
        {"broker": "kafka", "fault": "cut", "tally": tally, **more}, Result, from_attributes=True
    )


# -- the accounting --------------------------------------------------------------------------------


def test_an_acknowledged_message_that_nobody_handled_is_lost(ledger: Ledger) -> None:
    ledger.published("a", "b", "c")
    ledger.write("handled", "a", "c")
    tally = ledger.count()
    assert tally.lost == ["b"]
    assert (tally.acknowledged, tally.handled) == (3, 2)
    assert cell(tally).verdict == "broken"


def test_a_message_that_was_never_acknowledged_is_not_lost(ledger: Ledger) -> None:
    ledger.published("a")
    ledger.write("publishing", "b", temper="ok")
    ledger.write("handled", "a")
    assert ledger.count().lost == []


def test_a_dead_letter_is_not_lost_until_it_is_sent_back_and_never_handled(ledger: Ledger) -> None:
    ledger.published("a", temper="fails")
    ledger.write("dead", "a", reason="handler-error")
    assert ledger.count().lost == []
    assert ledger.count().dead == 1

    ledger.write("redriving")
    assert ledger.count().lost == ["a"]
    ledger.write("handled", "a")
    assert ledger.count().lost == []


def test_a_dead_letter_that_the_load_did_not_ask_for_is_a_complaint(ledger: Ledger) -> None:
    ledger.published("a", temper="kills")
    ledger.write("dead", "a", reason="crash-loop")
    assert cell(ledger.count()).verdict == "held"

    ledger.published("b")
    ledger.write("dead", "b", reason="crash-loop")
    assert ledger.count().unexplained == ["b (crash-loop)"]
    assert cell(ledger.count()).verdict == "broken"


def test_messages_that_are_handled_twice_are_counted_and_allowed(ledger: Ledger) -> None:
    ledger.published("a", "b")
    for id in ("a", "b", "a", "a"):
        ledger.write("started", id)
        ledger.write("handled", id)
    tally = ledger.count()
    assert (tally.handled, tally.twice, tally.begun_again) == (2, 1, 2)
    assert cell(tally).verdict == "held"


@pytest.mark.parametrize("refused", [True, False])
def test_a_message_out_of_nowhere_is_a_complaint(ledger: Ledger, refused: bool) -> None:
    ledger.published("a")
    if refused:
        ledger.write("publishing", "b", temper="ok")
        ledger.write("refused", "b", reason="rejected")
    ledger.write("handled", "a", "b")
    assert ledger.count().out_of_nowhere == ["b"]
    assert cell(ledger.count()).verdict == "broken"


def test_recovery_is_counted_from_the_end_of_the_fault(ledger: Ledger) -> None:
    ledger.published("a", "b")
    ledger.write("handled", "a")
    end = ledger.write("rejoined")
    ledger.published("c")
    ledger.write("handled", "b", "c")
    tally = ledger.count(end=end)
    assert (tally.recovered, tally.caught_up) == (3, 3)
    assert ledger.count(end=end, new_only=True).recovered == 4


def test_no_recovery_is_told_as_none(ledger: Ledger) -> None:
    ledger.published("a")
    end = ledger.write("rejoined")
    tally = ledger.count(end=end)
    assert (tally.recovered, tally.caught_up) == (None, None)


def test_a_queue_that_did_not_end_empty_is_a_complaint(ledger: Ledger) -> None:
    ledger.published("a")
    ledger.write("handled", "a")
    left = left_over(
        [QueueInfo(name="jobs", ready=0, delayed=2), QueueInfo(name="others", ready=0)]
    )
    assert left == ["2 delayed in jobs"]
    assert cell(ledger.count(), left=left).verdict == "broken"


def test_a_cell_in_which_nothing_was_published_proves_nothing(ledger: Ledger) -> None:
    assert cell(ledger.count()).verdict == "broken"


# -- the page --------------------------------------------------------------------------------------


def test_a_loss_is_told_on_the_page_and_in_json(ledger: Ledger) -> None:
    ledger.published("a", "b")
    ledger.write("handled", "a")
    report = report_of(cell(ledger.count()))
    assert "| Connection cut | **LOST 1 · 0 · 5.0 s** |" in markdown(report)
    assert "Kafka × Connection cut: LOST 1 messages: b" in markdown(report)
    (told,) = msgspec.json.decode(json(report))["results"]
    assert (told["verdict"], told["tally"]["lost"]) == ("broken", ["b"])


def test_a_cell_that_failed_shows_as_failed_and_fails_the_run() -> None:
    report = report_of(cell(failed="the broker did not start"))
    assert "| Connection cut | **FAILED** |" in markdown(report)
    assert "did not come to its end: the broker did not start" in markdown(report)
    assert report.complaints


def test_a_cell_that_does_not_apply_says_why_in_a_footnote() -> None:
    excused = cell(excused="There is no network.")
    report = report_of(excused, msgspec.structs.replace(excused, fault="slow"))
    assert "| Connection cut | – (1) |" in markdown(report)
    assert "| Slow network | – (1) |" in markdown(report)
    assert "1. There is no network.\n" in markdown(report)
    assert not report.complaints


def test_a_run_in_which_all_held_says_so(ledger: Ledger) -> None:
    ledger.published("a")
    ledger.write("handled", "a")
    text = markdown(report_of(cell(ledger.count())))
    assert "1 cells, 1 messages acknowledged, **0 lost**, all queues empty at the end" in text
    assert "| QueueCraft | 1.2.3 |" in text
    assert "2030-01-31" in text


def test_the_page_names_what_its_workers_have_that_is_no_default() -> None:
    text = markdown(report_of())
    for each in WORKERS:
        for name, value in each.items():
            assert f"`{name}={value}`" in text


def test_the_page_can_be_made_again_from_json(ledger: Ledger) -> None:
    ledger.published("a", "b")
    ledger.write("handled", "a")
    excused = cell(excused="There is no network.", broker="embedded")
    report = report_of(cell(ledger.count(), seconds=1.25), excused)
    assert markdown(read(json(report))) == markdown(report)


def test_excuses_are_for_faults_that_there_are() -> None:
    for row in ROWS.values():
        assert set(row.excuses) <= set(FAULTS)


# -- the real thing --------------------------------------------------------------------------------


async def test_a_cell_that_cannot_be_run_has_failed_and_raises_nothing(nursery: Nursery) -> None:
    class Nowhere(Embedded):
        @contextmanager
        def place(self, folder: Path, *, network: bool) -> Generator[Place]:
            raise OSError("no such place")
            yield

    result = await run(Nowhere(), FAULTS["worker-killed"], nursery, messages=FEW)
    assert result.verdict == "failed"
    assert "no such place" in result.failed


async def test_workers_killed_on_the_embedded_queue_lose_nothing(nursery: Nursery) -> None:
    result = await run(Embedded(), FAULTS["worker-killed"], nursery, messages=FEW)
    assert result.verdict == "held", result.complaints


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("kind", "fault"),
    [(RedisStream, "cut"), (RedisList, "worker-killed"), (Kafka, "worker-killed")],
)
async def test_a_cell_on_a_broker_of_its_own_loses_nothing(
    kind: type[Row], fault: str, nursery: Nursery
) -> None:
    row = kind()
    try:
        row.start()
        result = await run(row, FAULTS[fault], nursery, messages=FEW)
    except Unavailable as reason:
        do_without(f"{kind.name}: {reason}")
    finally:
        row.close()
    assert result.verdict == "held", result.complaints


async def test_connections_to_a_classic_queue_cut_lose_nothing(
    rabbitmq: RabbitMQ, nursery: Nursery
) -> None:
    row = RabbitMQClassic(server=rabbitmq)
    row.start()
    result = await run(row, FAULTS["cut"], nursery, messages=FEW)
    assert result.verdict == "held", result.complaints


async def test_a_killed_broker_of_a_quorum_queue_loses_nothing(
    rabbitmq: RabbitMQ, nursery: Nursery
) -> None:
    row = RabbitMQQuorum(server=rabbitmq)
    row.start()
    result = await run(row, FAULTS["broker-killed"], nursery, messages=FEW)
    assert result.verdict == "held", result.complaints
