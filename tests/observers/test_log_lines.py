"""How lines of the log look, and that they know their message."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from logging.handlers import QueueHandler
from queue import SimpleQueue
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuecraft import ConsoleFormatter, Event, JsonFormatter, LogContext, NoRetry, QueueCraft
from queuecraft.observers.log import MessageFilter
from tests.observers.otel.recorded import Recorded, context_of, trace_of
from tests.runtime.support import eventually, running

number = Event("number", int)
TRACE = f"00-{'a' * 32}-{'b' * 16}-01"


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """The application's own."""
    logger = logging.getLogger("the-shop")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    yield logger
    logger.handlers.clear()


def lines_of(logger: logging.Logger, formatter: logging.Formatter) -> io.StringIO:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logger.addHandler(handler)
    return stream


def record_of(text: str, raised: BaseException | None = None, **fields: Any) -> logging.LogRecord:
    info = None if raised is None else (type(raised), raised, raised.__traceback__)
    record = logging.LogRecord("queuecraft", logging.ERROR, "", 0, "%s", (text,), info)
    if fields:
        record.queuecraft = fields
    return record


async def test_lines_of_a_handler_know_its_message(log: logging.Logger) -> None:
    stream = lines_of(log, JsonFormatter())
    qc = QueueCraft()
    qc.use(LogContext())
    worker = qc.worker("billing")

    @worker.on(number)
    async def handle(n: int) -> None:
        await asyncio.sleep(0)
        await asyncio.create_task(deeper(n))

    async def deeper(n: int) -> None:
        log.info("charging %d", n)

    @worker.on("plain")
    def plain(n: int) -> None:  # in a thread
        log.info("plain %d", n)

    async with qc, running(worker):
        log.info("before")
        id = await qc.publish(number, 1, correlation_id="c-1", headers={"traceparent": TRACE})
        other = await qc.publish("plain", 2)
        await eventually(lambda: qc.get_metrics().messages_succeeded == 2)
        log.info("after")
    told = {each["message"]: each for each in map(json.loads, stream.getvalue().splitlines())}
    line = told["charging 1"]
    assert (line["queue"], line["event"], line["message_id"]) == ("billing", "number", id)
    assert (line["correlation_id"], line["attempt"]) == ("c-1", 1)
    assert line["trace_id"] == "a" * 32
    assert told["plain 2"]["message_id"] == other
    for outside in ("before", "after"):
        assert "message_id" not in told[outside]


async def test_a_handler_of_lists_has_its_queue_in_its_lines(log: logging.Logger) -> None:
    stream = lines_of(log, JsonFormatter())
    qc = QueueCraft()
    qc.use(LogContext())
    worker = qc.worker("billing")

    @worker.on(number, batch_size=10, batch_wait=0.1)
    async def handle(numbers: list[int]) -> None:
        log.info("charging")

    async with qc, running(worker):
        await qc.publish_many(number, range(3))
        await eventually(lambda: qc.get_metrics().messages_succeeded == 3)
    line = json.loads(stream.getvalue().splitlines()[0])
    assert (line["queue"], line["messages"]) == ("billing", 3)


async def test_lines_in_a_span_know_its_trace(log: logging.Logger) -> None:
    stream = lines_of(log, JsonFormatter())
    recorded = Recorded()
    qc = recorded.queuecraft(middleware=[LogContext()], logger=log)
    worker = qc.worker("billing", retry=NoRetry())

    @worker.on(number)
    async def handle(n: int) -> None:
        log.info("charging")
        raise ValueError("no money")

    async with qc, running(worker):
        await qc.publish(number, 1)
        await eventually(lambda: len(recorded.named("process billing")) == 1)
    (span,) = recorded.named("process billing")
    lines = [json.loads(each) for each in stream.getvalue().splitlines()]
    (inside,) = [each for each in lines if each["message"] == "charging"]
    assert inside["trace_id"] == f"{trace_of(span):032x}"
    assert inside["span_id"] == f"{context_of(span).span_id:016x}"
    ends = [each for each in lines if each["level"] == "error"]
    assert len(ends) == 2
    assert {each["trace_id"] for each in ends} == {inside["trace_id"]}


async def test_a_filter_keeps_the_message_for_other_formatters_and_threads(
    log: logging.Logger,
) -> None:
    plain = lines_of(log, logging.Formatter("%(queue)s %(message_id)s %(message)s"))
    log.handlers[0].addFilter(MessageFilter())
    records: SimpleQueue[logging.LogRecord] = SimpleQueue()
    queued = QueueHandler(records)
    queued.addFilter(MessageFilter())
    log.addHandler(queued)
    qc = QueueCraft()
    qc.use(LogContext())
    worker = qc.worker("billing")

    @worker.on(number)
    async def handle(n: int) -> None:
        log.info("charging")

    async with qc, running(worker):
        log.info("before")
        id = await qc.publish(number, 1)
        await eventually(lambda: qc.get_metrics().messages_succeeded == 1)
    assert plain.getvalue().splitlines() == ["- - before", f"billing {id} charging"]
    records.get()
    assert json.loads(JsonFormatter().format(records.get()))["message_id"] == id


def test_a_line_for_people_has_its_fields_and_its_stack_below() -> None:
    try:
        raise ValueError("no money")
    except ValueError as error:
        failed = error
    fields = {"queue": "billing", "consumer": "billing", "attempt": 1, "error": "no money"}
    line, *below = (
        ConsoleFormatter(process=3)
        .format(record_of("failed: no money", failed, **fields))
        .split("\n")
    )
    assert line[8:] == " ERROR   [3] failed: no money  queue=billing attempt=1"
    assert below[0] == "  Traceback (most recent call last):"
    assert below[1].startswith("    File ")
    assert below[-1] == "  ValueError: no money"


def test_colours_are_for_terminals() -> None:
    assert "\x1b[31mERROR" in ConsoleFormatter(colours=True).format(record_of("no"))
    assert "\x1b" not in ConsoleFormatter().format(record_of("no", queue="billing"))


@given(st.text(), st.text(), st.text())
def test_no_text_can_make_a_line_of_its_own(text: str, field: str, error: str) -> None:
    record = record_of(text, ValueError(error), queue=field, message_id=field)
    first, *below = ConsoleFormatter().format(record).split("\n")
    assert first.isprintable()
    assert all(each.startswith("  ") and each.isprintable() for each in below)
    line = JsonFormatter().format(record)
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["queue"] == field


def test_a_field_that_cannot_be_said_does_not_lose_the_line() -> None:
    class Mute:
        def __str__(self) -> str:
            raise RuntimeError("no")

    for formatter in (ConsoleFormatter(), JsonFormatter()):
        assert "Mute" in formatter.format(record_of("x", queue=Mute()))
