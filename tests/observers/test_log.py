"""What is logged, at which level, and that nothing in a message can forge a line."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuecraft import DeadLetter, JsonFormatter, NoDeadLetter, NoRetry, QueueCraft, Retry
from queuecraft.drivers.base import Delivery, Outgoing
from queuecraft.facts import (
    ConnectionStateChanged,
    Fact,
    MessageDeadLettered,
    MessageDropped,
    MessageExpired,
    MessageFailed,
    MessageRetried,
    MessagesSucceeded,
    Reconnected,
    ReconnectFailed,
    Reconnecting,
    Shutdown,
    WorkerPaused,
    WorkerResumed,
    WorkerStarted,
    WorkerStopped,
)
from queuecraft.model.outcome import Failure
from queuecraft.observers.log import LogObserver, printable
from queuecraft.runtime.facts import Facts
from queuecraft.testing import Ledger
from tests.runtime.support import Order, Stage, order_placed, running, staged

FAILURE = Failure("ValueError", "no money", 'Traceback:\n  File "x.py"\nValueError: no money\n')
DELIVERY = Delivery(
    Outgoing(b"", "m-1", "events", "order.placed", correlation_id="c-1"), "billing", 2
)


class Journal(logging.Handler):
    """Keeps records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def last(self) -> logging.LogRecord:
        return self.records[-1]

    @property
    def fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = vars(self.last)["queuecraft"]
        return fields


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("shop")
    logger.setLevel(logging.DEBUG)
    yield logger
    logger.handlers.clear()


@pytest.fixture
def journal(logger: logging.Logger) -> Journal:
    journal = Journal()
    logger.addHandler(journal)
    return journal


@pytest.fixture
def facts(logger: logging.Logger) -> Facts:
    facts = Facts(logger)
    LogObserver(logger).attach(facts)
    return facts


def failed(failure: Failure | None = FAILURE, delivery: Delivery = DELIVERY) -> MessageFailed:
    return MessageFailed(
        worker="billing", delivery=delivery, attempt=2, reason="handler-error", failure=failure
    )


ABOUT: dict[str, Any] = {
    "worker": "billing",
    "delivery": DELIVERY,
    "attempt": 4,
    "reason": "handler-error",
    "failure": FAILURE,
}

LINES: list[tuple[Fact, int, str]] = [
    (failed(), logging.ERROR, "billing: message m-1 attempt 2 failed (handler-error): ValueError"),
    (MessageRetried(**ABOUT, delay=2.5), logging.INFO, "comes again in 2.5 s, after attempt 4"),
    (MessageDeadLettered(**ABOUT), logging.ERROR, "dead-lettered (handler-error) after attempt 4"),
    (MessageDropped(**ABOUT), logging.ERROR, "dropped (handler-error) after attempt 4"),
    (MessageExpired(worker="billing", delivery=DELIVERY), logging.WARNING, "expired unhandled"),
    (ConnectionStateChanged(old="connecting", new="connected"), logging.INFO, "→ connected"),
    (ConnectionStateChanged(old="disconnected", new="connecting"), logging.DEBUG, "→ connecting"),
    (ConnectionStateChanged(old="reconnecting", new="connected"), logging.DEBUG, "→ connected"),
    (ConnectionStateChanged(old="connected", new="closing"), logging.DEBUG, "→ closing"),
    (
        ConnectionStateChanged(old="reconnecting", new="disconnected", error="cut"),
        logging.DEBUG,
        "→ disconnected: cut",
    ),
    (
        ConnectionStateChanged(old="connected", new="reconnecting", error="cut"),
        logging.WARNING,
        "connection connected → reconnecting: cut",
    ),
    (Reconnecting(attempt=3, delay=1.5, error="cut"), logging.WARNING, "(3), again in 1.5 s: cut"),
    (Reconnected(attempt=3, downtime=7.0), logging.INFO, "reconnected after 7.0 s"),
    (ReconnectFailed(attempts=10, error="cut"), logging.ERROR, "connecting after 10 attempts: cut"),
    (ReconnectFailed(attempts=1, error="cut"), logging.ERROR, "connecting after 1 attempt: cut"),
    (ReconnectFailed(attempts=0, error="cut"), logging.ERROR, "not reconnecting: cut"),
    (WorkerStarted(worker="billing", queue="billing"), logging.INFO, "worker billing started"),
    (WorkerStopped(worker="billing", queue="billing"), logging.INFO, "worker billing stopped"),
    (
        WorkerPaused(worker="billing", queue="billing", reason="dead letters are stuck"),
        logging.WARNING,
        "worker billing paused: dead letters are stuck",
    ),
    (WorkerResumed(worker="billing", queue="billing"), logging.INFO, "worker billing resumed"),
    (Shutdown(), logging.INFO, "shut down"),
]


@pytest.mark.parametrize(("fact", "level", "text"), LINES, ids=lambda each: type(each).__name__)
def test_each_fact_has_its_line_and_level(
    facts: Facts, journal: Journal, fact: Fact, level: int, text: str
) -> None:
    facts.emit(fact)
    (record,) = journal.records
    assert record.levelno == level
    assert text in record.getMessage()


def test_a_success_is_not_worth_a_line(facts: Facts, journal: Journal) -> None:
    facts.emit(MessagesSucceeded(worker="billing", deliveries=[DELIVERY], durations=[0.1]))
    assert journal.records == []


def test_a_failure_carries_every_field(facts: Facts, journal: Journal) -> None:
    facts.emit(failed())
    assert journal.fields == {
        "queue": "billing",
        "consumer": "billing",
        "event": "order.placed",
        "message_id": "m-1",
        "correlation_id": "c-1",
        "attempt": 2,
        "error": "ValueError: no money",
        "stack": FAILURE.traceback,
    }


@pytest.mark.parametrize("kind", [MessageDeadLettered, MessageDropped])
def test_the_end_of_a_message_says_why(facts: Facts, journal: Journal, kind: type[Fact]) -> None:
    facts.emit(kind(**ABOUT))
    assert journal.fields["error"] == "ValueError: no money"
    assert journal.fields["attempt"] == 4


def test_what_is_not_known_is_left_out(facts: Facts, journal: Journal) -> None:
    facts.emit(failed(None, Delivery(Outgoing(b"", "m-1"), "billing")))
    assert "correlation_id" not in journal.fields
    assert "error" not in journal.fields


def test_the_stack_follows_the_line(facts: Facts, journal: Journal) -> None:
    facts.emit(failed())
    first, *rest = journal.last.getMessage().split("\n")
    assert first.endswith("ValueError: no money")
    assert [line.strip() for line in rest] == FAILURE.traceback.replace("  ", "").splitlines()


def test_a_level_that_is_off_costs_no_line(facts: Facts, logger: logging.Logger) -> None:
    journal = Journal()
    logger.addHandler(journal)
    logger.setLevel(logging.ERROR)
    facts.emit(Reconnecting(attempt=1, delay=1.0, error="cut"))
    assert journal.records == []


# -- hostile text ----------------------------------------------------------------------------

HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\nERROR forged line\u2028\u202e\x00\ud800\x85\x7f"


def hostile() -> list[Fact]:
    sent = Outgoing(b"", HOSTILE, "events", HOSTILE, correlation_id=HOSTILE)
    delivery = Delivery(sent, "billing")
    failure = Failure(HOSTILE, HOSTILE, f"Traceback:\n{HOSTILE}\n")
    about: dict[str, Any] = {
        "worker": "billing",
        "delivery": delivery,
        "attempt": 1,
        "reason": HOSTILE,
        "failure": failure,
    }
    return [
        MessageFailed(**about),
        MessageRetried(**about, delay=1.0),
        MessageDeadLettered(**about),
        MessageDropped(**about),
        MessageExpired(worker="billing", delivery=delivery),
        ConnectionStateChanged(old="connected", new="reconnecting", error=HOSTILE),
        Reconnecting(attempt=1, delay=1.0, error=HOSTILE),
        ReconnectFailed(attempts=1, error=HOSTILE),
        WorkerPaused(worker="billing", queue="billing", reason=HOSTILE),
    ]


@pytest.mark.parametrize("fact", hostile(), ids=lambda fact: type(fact).__name__)
def test_no_control_character_reaches_the_terminal(
    facts: Facts, journal: Journal, fact: Fact
) -> None:
    facts.emit(fact)
    text = journal.last.getMessage()
    assert all(each.isprintable() or each == "\n" for each in text)
    assert text.encode()  # no half characters either


@pytest.mark.parametrize("fact", hostile(), ids=lambda fact: type(fact).__name__)
def test_no_message_can_forge_a_line(facts: Facts, journal: Journal, fact: Fact) -> None:
    facts.emit(fact)
    _, *rest = journal.last.getMessage().splitlines()
    assert not any(line.startswith("ERROR") for line in rest)
    if not isinstance(fact, MessageFailed):  # the only one with a stack
        assert rest == []


@given(st.text())
def test_printable_text_is_printable(text: str) -> None:
    assert printable(text).isprintable()
    if text.isprintable():
        assert printable(text) == text


def test_percent_signs_are_just_that(facts: Facts, journal: Journal) -> None:
    facts.emit(failed(Failure("E", "100 %s %d %(x)s")))
    assert "100 %s %d %(x)s" in journal.last.getMessage()


# -- as JSON ---------------------------------------------------------------------------------


@pytest.fixture
def stream(logger: logging.Logger) -> io.StringIO:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger.addHandler(handler)
    return stream


def test_json_has_every_field_on_one_line(facts: Facts, stream: io.StringIO) -> None:
    facts.emit(failed())
    (text,) = stream.getvalue().splitlines()
    line = json.loads(text)
    assert line.pop("timestamp").endswith("+00:00")
    assert line == {
        "level": "error",
        "logger": "shop",
        "message": "billing: message m-1 attempt 2 failed (handler-error): ValueError: no money",
        "queue": "billing",
        "consumer": "billing",
        "event": "order.placed",
        "message_id": "m-1",
        "correlation_id": "c-1",
        "attempt": 2,
        "error": "ValueError: no money",
        "stack": FAILURE.traceback,
    }


@pytest.mark.parametrize("fact", hostile(), ids=lambda fact: type(fact).__name__)
def test_json_is_one_harmless_line_whatever_a_message_holds(
    facts: Facts, stream: io.StringIO, fact: Fact
) -> None:
    facts.emit(fact)
    text = stream.getvalue()
    assert text.endswith("\n")
    line = text[:-1]
    assert line.isprintable()
    assert line.isascii()
    assert isinstance(json.loads(line), dict)


def test_json_keeps_text_that_can_be_read(facts: Facts, stream: io.StringIO) -> None:
    facts.emit(failed(Failure("E", "Ärger mit 東京")))
    assert json.loads(stream.getvalue())["error"] == "E: Ärger mit 東京"


def test_json_keeps_the_stack_of_an_exception(logger: logging.Logger, stream: io.StringIO) -> None:
    try:
        raise LookupError("gone")
    except LookupError:
        logger.exception("that went wrong")
    line = json.loads(stream.getvalue())
    assert line["message"] == "that went wrong"
    assert "LookupError: gone" in line["stack"]


def test_json_keeps_every_line_of_a_message_without_fields(
    logger: logging.Logger, stream: io.StringIO
) -> None:
    logger.warning("the loop is blocked. It is here:\n%s", "File x.py\nFile y.py")
    (text,) = stream.getvalue().splitlines()
    assert json.loads(text)["message"].endswith("here:\nFile x.py\nFile y.py")


def test_json_takes_values_that_are_no_json(logger: logging.Logger, stream: io.StringIO) -> None:
    logger.info("odd", extra={"queuecraft": {"value": object, "raw": b"\xff", "set": {1}}})
    assert json.loads(stream.getvalue())["raw"] == "b'\\xff'"


# -- from a worker ---------------------------------------------------------------------------


@pytest.fixture
async def stage(logger: logging.Logger) -> AsyncIterator[Stage]:
    async with staged(logger=logger) as stage:
        yield stage


async def test_every_retry_is_logged_with_its_attempt(stage: Stage, journal: Journal) -> None:
    worker = stage.qc.worker("billing", retry=Retry(max_retries=2, initial_delay=1))
    worker.on(order_placed, Ledger().failing("billing", times=None))
    async with running(worker):
        id = await stage.qc.publish(order_placed, Order("o-1"), correlation_id="c-1")
        await stage.clock.advance(10)
    lines = [
        (record.levelname, vars(record)["queuecraft"]["attempt"])
        for record in journal.records
        if vars(record).get("queuecraft", {}).get("message_id") == id
    ]
    assert lines == [
        ("ERROR", 1),
        ("INFO", 1),
        ("ERROR", 2),
        ("INFO", 2),
        ("ERROR", 3),
        ("ERROR", 3),  # the dead letter
    ]
    retried = [r.getMessage() for r in journal.records if "comes again" in r.getMessage()]
    assert [text.partition("comes ")[2] for text in retried] == [
        "again in 1 s, after attempt 1",
        "again in 2 s, after attempt 2",
    ]


async def test_an_error_and_its_stack_are_told_once_for_each_attempt(
    stage: Stage, journal: Journal
) -> None:
    worker = stage.qc.worker("billing", retry=Retry(max_retries=1))
    worker.on(order_placed, Ledger().failing("billing", times=None))
    async with running(worker):
        await stage.qc.publish(order_placed, Order("o-1"))
        await stage.clock.advance(10)
    texts = [record.getMessage() for record in journal.records]
    assert sum("RuntimeError" in text for text in texts) == 2
    assert sum("Traceback" in text for text in texts) == 2


@pytest.mark.parametrize("keep", [DeadLetter(), NoDeadLetter()], ids=["kept", "dropped"])
async def test_a_payload_that_does_not_fit_is_one_line_without_our_stack(
    stage: Stage, journal: Journal, keep: DeadLetter | NoDeadLetter
) -> None:
    worker = stage.qc.worker("billing", dead_letter=keep)
    worker.on(order_placed, Ledger().recording("billing"))
    async with running(worker):
        id = await stage.qc.publish("order.placed", {"id": 5})
        await stage.clock.settle()
    (text,) = [r.getMessage() for r in journal.records if id in r.getMessage()]
    assert "(invalid-payload) after attempt 1" in text
    assert "queuecraft.PayloadError: the body cannot be read as Order" in text
    assert "\n" not in text


async def test_a_dropped_message_is_an_error(stage: Stage, journal: Journal) -> None:
    worker = stage.qc.worker("billing", retry=NoRetry(), dead_letter=NoDeadLetter())
    worker.on(order_placed, Ledger().failing("billing", times=None))
    async with running(worker):
        await stage.qc.publish(order_placed, Order("o-1"))
        await stage.clock.settle()
    assert any("dropped" in r.getMessage() and r.levelname == "ERROR" for r in journal.records)


async def test_lines_go_to_the_logger_that_was_given(
    stage: Stage, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(stage.qc.worker("billing").on(order_placed, Ledger().recording("a"))):
        pass
    assert any("worker billing started" in r.getMessage() for r in journal.records)
    assert {record.name for record in caplog.records} <= {"shop"}


async def test_without_a_logger_lines_go_to_the_librarys_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "queuecraft"):
        async with QueueCraft():
            pass
    assert {record.name for record in caplog.records} == {"queuecraft"}
    assert "shut down" in caplog.messages


def test_the_librarys_logger_is_silent_by_default() -> None:
    handlers = logging.getLogger("queuecraft").handlers
    assert any(isinstance(each, logging.NullHandler) for each in handlers)


async def test_a_logger_that_fails_stops_no_message() -> None:
    class Broken(logging.Logger):
        def log(self, *args: Any, **kwargs: Any) -> None:
            raise OSError("the disk is full")

    seen = Ledger()
    async with staged(logger=Broken("broken")) as stage:
        worker = stage.qc.worker("billing").on(order_placed, seen.failing("billing", times=1))
        async with running(worker):
            seen.published(await stage.qc.publish(order_placed, Order("o-1")))
            await stage.clock.advance(5)
    seen.check()
