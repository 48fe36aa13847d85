"""QueueCraft from plain code: threads, errors, ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from queuecraft import (
    ConfigError,
    ConnectionLost,
    Event,
    PayloadError,
    PublishError,
    Queue,
    QueueError,
    RemoteError,
)
from queuecraft import QueueCraft as AsyncQueueCraft
from queuecraft.drivers.base import Driver
from queuecraft.sync import QueueCraft
from queuecraft.sync.thread import LoopThread
from tests.features.life import running


@dataclass
class Order:
    id: str
    total: float = 9.5


order_placed = Event("order.placed", Order)
numbers = Event("number", int)


@pytest.fixture
def qc() -> Iterator[QueueCraft]:
    with QueueCraft("local://") as made:
        made.admin.declare("billing", "order.placed", "number")
        yield made


def test_a_message_that_was_published_is_there(qc: QueueCraft) -> None:
    message_id = qc.publish(order_placed, Order("o-1"), headers={"tenant": "t1"})

    (peeked,) = qc.admin.peek("billing")
    assert (peeked.id, peeked.payload["id"]) == (message_id, "o-1")
    assert peeked.headers["tenant"] == "t1"
    assert qc.get_metrics().messages_sent == 1
    assert qc.health_check().ok


def test_a_message_is_sent_to_one_queue(qc: QueueCraft) -> None:
    qc.send(Queue("billing", Order), Order("o-1"))
    qc.send("billing", {"id": "o-2"})

    assert qc.admin.inspect("billing").ready == 2


def test_many_are_published_from_what_the_calling_thread_reads(qc: QueueCraft) -> None:
    here = threading.get_ident()

    def read() -> Iterator[int]:
        for number in range(3):
            assert threading.get_ident() == here
            yield number

    assert len(qc.publish_many(numbers, read())) == 3
    results = qc.publish_many("number", [1], return_exceptions=True)
    assert all(isinstance(each, str) for each in results)


def test_the_errors_are_those_of_the_async_one(qc: QueueCraft) -> None:
    wrong: Any = "nine"
    unknown: Any = {"ttl_seconds": 5}
    with pytest.raises(PayloadError, match="expected int"):
        qc.publish(numbers, wrong)
    with pytest.raises(PublishError) as failed:
        qc.publish_many(numbers, [1, wrong, 3])
    assert [isinstance(each, QueueError) for each in failed.value.results] == [False, True, False]
    with pytest.raises(ConfigError, match="unknown option 'ttl_seconds'"):
        qc.publish("number", 1, **unknown)


async def test_a_request_is_answered_by_a_worker_elsewhere(tmp_path: Path) -> None:
    url = f"local://{tmp_path}/queue.db"
    workers = AsyncQueueCraft(url)
    pricing = workers.worker("pricing")

    @pricing.on("price.asked")
    async def price(article: str) -> float:
        return {"tea": 4.5}[article]

    def ask() -> float:
        with QueueCraft(url) as qc:
            with pytest.raises(RemoteError, match="KeyError"):
                qc.request("price.asked", "coffee")
            return qc.request("price.asked", "tea", float)

    async with workers, running(pricing):
        assert await asyncio.to_thread(ask) == 4.5


def test_threads_may_publish_at_once(tmp_path: Path) -> None:
    with QueueCraft(f"local://{tmp_path}/queue.db") as qc:
        qc.admin.declare("numbers", "number")
        with ThreadPoolExecutor(16) as threads:
            ids = list(threads.map(lambda each: qc.publish(numbers, each), range(400)))

        assert len(set(ids)) == 400
        peeked = qc.admin.peek("numbers", limit=1000)
        assert sorted(each.payload for each in peeked) == list(range(400))


def test_two_of_them_share_one_thread(qc: QueueCraft, tmp_path: Path) -> None:
    async def thread(_: AsyncQueueCraft) -> int:
        return threading.get_ident()

    with QueueCraft(f"local://{tmp_path}/queue.db") as other:
        assert other.call(thread) == qc.call(thread) != threading.get_ident()


def test_what_is_published_knows_the_context_it_is_published_from(qc: QueueCraft) -> None:
    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")

    async def who(_: AsyncQueueCraft) -> str:
        return tenant.get()

    tenant.set("t1")
    assert qc.call(who) == "t1"


async def test_inside_an_event_loop_it_says_what_to_use(qc: QueueCraft) -> None:
    with pytest.raises(ConfigError, match=r"use the async queuecraft\.QueueCraft"):
        qc.publish(order_placed, Order("o-1"))
    with pytest.raises(ConfigError, match="running event loop"):
        qc.close()


def test_a_call_that_takes_too_long_is_given_up(qc: QueueCraft) -> None:
    cancelled = threading.Event()

    async def wait(_: AsyncQueueCraft) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(TimeoutError):
        qc.call(wait, timeout=0.05)
    assert cancelled.wait(10)
    qc.publish(order_placed, Order("o-1"))


def test_a_publish_nobody_answers_ends_when_its_time_is_up() -> None:
    qc = QueueCraft("amqp://127.0.0.1:1", publish_timeout=0.2, reconnect_delay=0.05)
    with pytest.raises(PublishError, match=r"no connection within 0\.2 s") as failed:
        qc.publish(order_placed, Order("o-1"))
    assert failed.value.outcome == "rejected"
    assert not qc.health_check().ok
    qc.close()


def test_with_says_at_once_that_no_broker_answers() -> None:
    with pytest.raises(ConnectionLost), QueueCraft("amqp://127.0.0.1:1"):
        pass


def test_a_closed_one_says_so(tmp_path: Path) -> None:
    qc = QueueCraft(f"local://{tmp_path}/queue.db")
    qc.open()
    qc.close()
    qc.close()
    with pytest.raises(ConnectionLost, match="make a new one"):
        qc.publish(order_placed, Order("o-1"))
    assert qc.health_check().connection_state == "closed"


def test_one_that_is_dropped_leaves_no_connection_behind(tmp_path: Path) -> None:
    closed = threading.Event()
    qc = QueueCraft(f"local://{tmp_path}/queue.db")
    held = qc._held.current
    driver = held._engine.connection._drivers[0]
    close = driver.close

    async def closing() -> None:
        await close()
        closed.set()

    driver.close = closing  # type: ignore[method-assign]
    qc.open()
    del qc
    assert closed.wait(10)


async def test_a_plain_handler_may_publish_what_follows(tmp_path: Path) -> None:
    url = f"local://{tmp_path}/queue.db"
    handled = asyncio.Event()
    loop = asyncio.get_running_loop()
    workers = AsyncQueueCraft(url)
    worker = workers.worker("orders")
    sync = QueueCraft(url)

    @worker.on(order_placed)
    def place(order: Order) -> None:
        sync.publish(numbers, 1)

    @worker.on(numbers)
    async def note(value: int) -> None:
        loop.call_soon(handled.set)

    async with workers, running(worker):
        await workers.publish(order_placed, Order("o-1"))
        async with asyncio.timeout(20):
            await handled.wait()
    await asyncio.to_thread(sync.close)


def test_what_comes_after_the_end_is_refused() -> None:
    thread = LoopThread()
    assert thread.stop(timeout=5)

    async def nothing() -> None: ...

    for _ in range(2):
        with pytest.raises(ConnectionLost, match="about to end"):
            thread.submit(nothing)


def test_a_wrong_setting_is_told_when_it_is_made() -> None:
    with pytest.raises(ConfigError, match="publish_timeout=0"):
        QueueCraft("local://", publish_timeout=0)
    ready_made: list[Driver] = []
    with pytest.raises(ConfigError, match=r"Drivers\(\)"):
        QueueCraft(drivers=ready_made)


def test_settings_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("QUEUECRAFT_URL", f"local://{tmp_path}/queue.db")
    monkeypatch.setenv("QUEUECRAFT_PUBLISH_TIMEOUT", "7")
    with QueueCraft.from_environment() as qc:
        assert qc.settings.publish_timeout == 7
        assert (tmp_path / "queue.db").exists()


def test_only_what_can_be_waited_for_has_a_face(qc: QueueCraft) -> None:
    assert qc.dead_letters.count("billing") == 0
    assert qc.delayed.cancel("nobody") is False
    assert "peek" in dir(qc.admin)
    with pytest.raises(AttributeError, match="'payload_of'"):
        qc.admin.payload_of(None)
