"""What a connection to Kafka leaves behind when it is closed: nothing."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, TopicPartition

from queuecraft import ConnectionLost, QueueCraft, QueueError
from queuecraft.drivers.base import Outgoing, Queue, Receipt
from queuecraft.drivers.kafka import drivers
from queuecraft.drivers.kafka.driver import KafkaDriver
from queuecraft.drivers.kafka.producing import Producing
from queuecraft.drivers.kafka.subscription import KafkaSubscription
from queuecraft.drivers.target import Target
from tests.brokers.port import Port
from tests.runtime.support import eventually


def threads() -> set[str]:
    """Those of librdkafka that are at work in this process; each has its own files."""
    found = set[str]()
    for each in Path("/proc/self/task").glob("*/comm"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            if each.read_text(encoding="utf-8").startswith("rdk:"):
                found.add(each.parent.name)
    return found


@asynccontextmanager
async def no_threads_left() -> AsyncGenerator[None]:
    """After the block none of librdkafka's threads is left, without the garbage collector: it would
    wait for ever for a consumer that was not closed, and collect nothing meanwhile."""
    gc.collect()
    before = threads()
    gc.disable()
    try:
        yield
        await eventually(lambda: threads() <= before, timeout=20)
    finally:
        gc.enable()


async def once(url: str) -> None:
    async with QueueCraft(url) as qc:
        await qc.admin.declare("billing", "order.*")
        await qc.publish("order.placed", {})
        await qc.admin.queues()


async def test_no_thread_waits_for_the_garbage_collector(url: str) -> None:
    async with no_threads_left():
        before = threads()
        async with QueueCraft(url) as qc:
            await qc.publish("order.placed", {}, unroutable="drop")
            assert threads() - before
        await once(url)


async def test_attempts_in_vain_leave_no_threads() -> None:
    async with no_threads_left():
        with Port() as nobody:
            qc = QueueCraft(f"kafka://127.0.0.1:{nobody.number}")
            for _ in range(3):
                with pytest.raises(ConnectionLost):
                    await qc.open()
            await qc.shutdown()
            del qc


async def test_what_is_asked_of_a_lost_connection_keeps_no_threads(url: str) -> None:
    async with no_threads_left():
        (driver,) = drivers(Target(url))
        assert isinstance(driver, KafkaDriver)
        await driver.open()
        driver.lose(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        for asked in (driver.inspect(), driver.announce("me", b"here", ttl=5), driver.topology()):
            with pytest.raises(ConnectionLost):
                await asked
        await driver.close()


async def test_a_no_for_an_answer_keeps_no_thread(url: str) -> None:
    async with no_threads_left():
        (driver,) = drivers(Target(url))
        assert isinstance(driver, KafkaDriver)
        await driver.open()
        await driver._cluster.look_for(["no-such-topic"], "inspect")
        with pytest.raises(QueueError):
            await driver._cluster.cut([TopicPartition("no-such-topic", 0, 1)])
        await driver.close()
        del driver


async def test_a_consumer_whose_thread_is_busy_is_closed_though_nobody_waits(url: str) -> None:
    async with no_threads_left():
        (driver,) = drivers(Target(url))
        await driver.open()
        await driver.declare(Queue("billing"))
        consumer = await driver.subscribe(Queue("billing"), prefetch=1)
        assert isinstance(consumer, KafkaSubscription)
        consumer._polling.submit(time.sleep, 0.5)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await consumer.close()
        await driver.close()
        del driver, consumer


@pytest.mark.parametrize("patience", [0.0, 0.05, 0.5])
async def test_a_close_that_nobody_waits_for_is_done_to_the_end(url: str, patience: float) -> None:
    async with no_threads_left():
        (driver,) = drivers(Target(url))
        await driver.open()
        for name in ("billing", "mail"):
            await driver.declare(Queue(name))
            consumer = await driver.subscribe(Queue(name), prefetch=1)
            await consumer.receive(1, 0.2)
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await driver.close()  # as a reconnect does, which has its time
        await driver.close()
        del driver, consumer


async def test_who_sends_after_the_end_is_told_so() -> None:
    producing = Producing({"bootstrap.servers": "127.0.0.1:1"}, lambda error: None)
    await producing.close()
    producing.give_up()
    with pytest.raises(ConnectionLost, match="closed"):
        await producing.send([])


async def test_who_waits_for_an_answer_at_the_end_is_told_that_nobody_knows() -> None:
    producing = Producing({"bootstrap.servers": "127.0.0.1:1"}, lambda error: None)
    sending = asyncio.ensure_future(producing.send([("orders", b"1", None, [])]))
    await asyncio.sleep(0)
    await producing.close()
    async with asyncio.timeout(5):
        errors = await sending
    assert {at: error.code() in UNANSWERED for at, error in errors.items()} == {0: True}


UNANSWERED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)


async def test_an_orderly_end_sends_on_nothing_twice(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[int] = []
    sent_on = asyncio.Event()
    plain = KafkaDriver.pass_on

    async def slow(driver: KafkaDriver, messages: Sequence[Outgoing]) -> Sequence[Receipt]:
        receipts = await plain(driver, messages)
        sent_on.set()
        await asyncio.sleep(0.3)  # in which the end comes
        return receipts

    def shop() -> QueueCraft:
        qc = QueueCraft(url)
        qc.worker("billing").on("order.placed", handled.append)
        return qc

    monkeypatch.setattr(KafkaDriver, "pass_on", slow)
    async with shop() as qc:
        await qc.workers[0].start()
        await qc.publish("order.placed", 1, delay=1, key="k")
        async with asyncio.timeout(20):
            await sent_on.wait()
    monkeypatch.undo()
    async with shop() as qc:
        await qc.workers[0].start()
        await qc.publish("order.placed", 2, delay=1, key="k")  # behind it in every topic
        await eventually(lambda: 2 in handled, timeout=20)
    assert sorted(handled) == [1, 2]
