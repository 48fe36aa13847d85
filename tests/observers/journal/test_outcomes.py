"""A row for each publish and each delivery, whatever becomes of it, on every queue alike."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from queuecraft import (
    DeadLetter,
    Event,
    Journal,
    Message,
    NoDeadLetter,
    NoRetry,
    QueueCraft,
    Retry,
    Worker,
)
from queuecraft.facts import Fact, MessageDeadLettered, MessageDropped
from queuecraft.observers.journal import Row
from tests.observers.journal.spooled import files, rows, told, untouched
from tests.runtime.support import eventually, running

number = Event("number", int)
AT_ONCE = Retry(max_retries=1, initial_delay=0)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "local://" if request.param == "memory" else f"local://{tmp_path}/queue.db"


@asynccontextmanager
async def at_work(qc: QueueCraft, *workers: Worker) -> AsyncGenerator[None]:
    async with qc, running(*workers):
        yield


def delivered(lake: Path) -> list[Row]:
    return [row for row in rows(lake) if row.kind == "delivered"]


async def test_a_publish_and_its_success_are_a_row_each(url: str, lake: Path) -> None:
    qc = QueueCraft(url, journal=lake)
    worker = qc.worker("numbers")
    seen: list[int] = []
    worker.on(number, seen.append)
    async with at_work(qc, worker):
        id = await qc.publish(number, 17, key="k-1", correlation_id="c-1", priority=2)
        await eventually(lambda: worker.counters.succeeded)
    published, handled = rows(lake)
    assert published.at <= handled.at
    common: dict[str, object] = {
        "message_id": id,
        "exchange": "events",
        "event": "number",
        "key": "k-1",
        "published_at": published.published_at,
        "size": 2,
        "content_type": "application/json",
        "correlation_id": "c-1",
        "priority": 2,
        "host": socket.gethostname(),
        "process": os.getpid(),
    }
    assert told(published) == {"kind": "published", "at": published.at, **common}
    assert handled.duration is not None
    assert handled.duration >= 0
    assert told(handled) == {
        "kind": "delivered",
        "at": handled.at,
        "queue": "numbers",
        "attempt": 1,
        "outcome": "succeeded",
        "duration": handled.duration,
        **common,
    }
    metrics = qc.get_metrics()
    assert (metrics.journal_written, metrics.journal_dropped) == (2, 0)


async def test_many_at_once_are_many_rows(url: str, lake: Path) -> None:
    qc = QueueCraft(url, journal=lake)
    worker = qc.worker("numbers", prefetch=500)
    worker.on(number, lambda n: None)
    async with at_work(qc, worker):
        ids = await qc.publish_many(number, range(2000))
        await eventually(lambda: worker.counters.succeeded == 2000)
    written = rows(lake)
    assert [row.message_id for row in written if row.kind == "published"] == ids
    handled = [row for row in written if row.kind == "delivered"]
    assert [row.message_id for row in handled] == ids
    assert {(row.queue, row.event, row.attempt, row.outcome) for row in handled} == {
        ("numbers", "number", 1, "succeeded")
    }
    assert all(row.duration is not None and row.published_at is not None for row in handled)


async def test_a_failure_tells_what_became_of_it_and_why(url: str, lake: Path) -> None:
    qc = QueueCraft(url, journal=lake)
    worker = qc.worker("numbers", retry=AT_ONCE)

    @worker.on(number)
    async def fail(n: int) -> None:
        raise KeyError(f"order {n}")

    async with at_work(qc, worker):
        id = await qc.publish(number, 17)
        await eventually(lambda: worker.counters.dead_lettered)
        letters = await qc.dead_letters.list("numbers")
    first, last = delivered(lake)
    assert (first.outcome, first.attempt, first.delay) == ("retried", 1, 0)
    assert (last.outcome, last.attempt, last.delay) == ("dead-lettered", 2, None)
    for row in first, last:
        assert (row.message_id, row.queue, row.event) == (id, "numbers", "number")
        assert (row.reason, row.error_type) == ("handler-error", "KeyError")
        assert row.error == "'order 17'"
        assert row.duration is not None
        assert row.fingerprint == letters[0].fingerprint
        assert row.headers is None  # `x-retry-count` is the attempt, and not told twice


async def test_what_is_not_kept_is_dropped(url: str, lake: Path) -> None:
    qc = QueueCraft(url, journal=lake)
    worker = qc.worker("numbers", retry=NoRetry(), dead_letter=NoDeadLetter())

    @worker.on(number)
    async def refuse(n: int, message: Message[int]) -> None:
        await message.nack(requeue=False)

    async with at_work(qc, worker):
        await qc.publish(number, 17)
        await eventually(lambda: worker.counters.dropped)
    (row,) = delivered(lake)
    assert (row.outcome, row.reason, row.error, row.duration) == ("dropped", "nack", None, None)
    assert row.fingerprint is not None


@pytest.mark.parametrize(
    ("keep", "outcome", "fact"),
    [
        (DeadLetter(), "dead-lettered", MessageDeadLettered),
        (NoDeadLetter(), "expired", MessageDropped),
    ],
    ids=["kept", "gone"],
)
async def test_an_expired_message_is_one_row(
    url: str, lake: Path, keep: DeadLetter | NoDeadLetter, outcome: str, fact: type[Fact]
) -> None:
    qc = QueueCraft(url, journal=lake)
    worker = qc.worker("numbers", dead_letter=keep)
    worker.on(number, lambda n: None)
    ended: list[Fact] = []
    qc.observe(fact, ended.append)
    async with qc:
        await qc.publish(number, 17, ttl=0.001)
        await asyncio.sleep(0.002)  # its time to live, not a wait for something to happen
        async with running(worker):
            await eventually(lambda: ended)
    (row,) = delivered(lake)
    assert (row.outcome, row.reason, row.attempt, row.duration) == (outcome, "expired", 1, None)
    assert row.expires_at is not None


async def test_a_payload_nobody_can_read_is_told(url: str, lake: Path) -> None:
    qc = QueueCraft(url, journal=lake)
    worker = qc.worker("numbers")
    worker.on(number, lambda n: None)
    async with at_work(qc, worker):
        await qc.publish("number", "seventeen")
        await eventually(lambda: worker.counters.dead_lettered)
    (row,) = delivered(lake)
    assert (row.outcome, row.reason) == ("dead-lettered", "invalid-payload")
    assert row.error_type is not None


async def test_a_message_settled_by_hand_took_no_one_knows_how_long(url: str, lake: Path) -> None:
    qc = QueueCraft(url, journal=lake)
    worker = qc.worker("numbers")

    @worker.on(number)
    async def take(n: int, message: Message[int]) -> None:
        await message.ack()

    async with at_work(qc, worker):
        await qc.publish(number, 17)
        await eventually(lambda: worker.counters.succeeded)
    (row,) = delivered(lake)
    assert (row.outcome, row.attempt, row.duration) == ("succeeded", 1, None)


@pytest.mark.parametrize("ordering", ["none", "key"])
async def test_a_success_after_failures_tells_its_attempt(
    url: str, lake: Path, ordering: Any
) -> None:
    qc = QueueCraft(url, journal=lake)
    options: Any = {"ordering": "key"} if ordering == "key" else {}
    worker = qc.worker("numbers", retry=Retry(max_retries=5, initial_delay=0), **options)
    attempts: list[int] = []

    @worker.on(number)
    async def fail_twice(n: int, message: Message[int]) -> None:
        attempts.append(message.attempt)
        if message.attempt < 3:
            raise ValueError(n)

    async with at_work(qc, worker):
        await qc.publish(number, 17, key="k-1")
        await eventually(lambda: worker.counters.succeeded)
    assert [(row.outcome, row.attempt) for row in delivered(lake)] == [
        ("retried", 1),
        ("retried", 2),
        ("succeeded", 3),
    ]
    assert attempts == [1, 2, 3]


async def test_a_dead_letter_that_is_handled_goes_by_the_event_it_was(url: str, lake: Path) -> None:
    qc = QueueCraft(url, journal=lake)
    worker = qc.worker("numbers", retry=NoRetry())

    @worker.on(number)
    async def fail(n: int) -> None:
        raise ValueError(n)

    undertaker = qc.worker("numbers.dlq")
    undertaker.on(number, lambda n: None)
    async with at_work(qc, worker, undertaker):
        await qc.publish(number, 17)
        await eventually(lambda: undertaker.counters.succeeded)
    died, buried = delivered(lake)
    assert (died.queue, died.event, died.outcome) == ("numbers", "number", "dead-lettered")
    assert (buried.queue, buried.event, buried.outcome) == ("numbers.dlq", "number", "succeeded")
    assert buried.attempt == 1
    assert buried.headers is not None
    assert buried.headers["x-original-queue"] == "numbers"


async def test_what_waited_in_delayed_is_published_when_the_broker_has_it(lake: Path) -> None:
    qc = QueueCraft("local://", journal=lake)
    worker = qc.worker("numbers")
    worker.on(number, lambda n: None)
    async with at_work(qc, worker):
        id = await qc.delayed.add(number, 17, delay=0.001)
        await qc.delayed.start()
        await eventually(lambda: worker.counters.succeeded)
    published, handled = rows(lake)
    assert (published.kind, published.message_id) == ("published", id)
    assert (handled.kind, handled.message_id) == ("delivered", id)
    assert published.due_at is not None
    assert published.due_at <= published.at <= handled.at


async def test_a_message_sent_to_a_queue_names_it(lake: Path) -> None:
    qc = QueueCraft("local://", journal=lake)
    worker = qc.worker("numbers")
    worker.on("numbers", lambda n: None)
    async with at_work(qc, worker):
        await qc.send("numbers", 17)
        await eventually(lambda: worker.counters.succeeded)
    assert [(row.kind, row.queue, row.exchange) for row in rows(lake)] == [
        ("published", "numbers", None),
        ("delivered", "numbers", None),
    ]


async def test_no_journal_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    qc = QueueCraft("local://")
    qc.worker("numbers").on(number, lambda n: None)
    async with qc:
        await qc.publish(number, 17)
    assert untouched(tmp_path)


async def test_a_journal_with_nothing_to_tell_makes_no_file(tmp_path: Path) -> None:
    async with QueueCraft("local://", journal=tmp_path / "lake"):
        pass
    assert untouched(tmp_path)


async def test_two_applications_share_a_lake(lake: Path) -> None:
    one = QueueCraft("local://", journal=Journal(lake, service="one"))
    two = QueueCraft("local://", journal=Journal(lake, service="two"))
    for qc in one, two:
        qc.worker("numbers").on(number, lambda n: None)
    async with one, two:
        for n in range(100):
            await asyncio.gather(one.publish(number, n), two.publish(number, n))
    written = rows(lake)
    assert len(files(lake)) == 2
    assert sorted(row.service or "" for row in written) == ["one"] * 100 + ["two"] * 100
    assert len({row.message_id for row in written}) == 200


@pytest.mark.parametrize("broker", ["rabbitmq_url", "redis_url"])
async def test_it_is_the_same_over_a_network(
    broker: str, lake: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(broker)
    qc = QueueCraft(f"{url}&mode=stream" if broker == "redis_url" else url, journal=lake)
    worker = qc.worker("numbers", retry=AT_ONCE)

    @worker.on(number)
    async def fail_once(n: int, message: Message[int]) -> None:
        if message.attempt == 1:
            raise ValueError(n)

    async with at_work(qc, worker):
        id = await qc.publish(number, 17, key="k-1", headers={"tenant": "t1", "tries": 2})
        await eventually(lambda: worker.counters.succeeded, timeout=30)
    written = rows(lake)
    assert [(row.kind, row.outcome, row.attempt) for row in written] == [
        ("published", None, 0),
        ("delivered", "retried", 1),
        ("delivered", "succeeded", 2),
    ]
    for row in written:
        assert (row.message_id, row.key, row.event) == (id, "k-1", "number")
        assert (row.headers, row.typed_headers) == ({"tenant": "t1"}, '{"tries":2}')
        assert row.published_at == pytest.approx(written[0].published_at, abs=0.002)
