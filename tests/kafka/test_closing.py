"""What a connection to Kafka leaves behind when it is closed: nothing."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from queuecraft import ConnectionLost, QueueCraft
from queuecraft.drivers.base import Outgoing, Receipt
from queuecraft.drivers.kafka.driver import KafkaDriver
from queuecraft.drivers.kafka.producing import Producing
from tests.runtime.support import eventually


def threads() -> int:
    """How many of librdkafka's are at work in this process; each has its own files."""
    names = (each.read_text(encoding="utf-8") for each in Path("/proc/self/task").glob("*/comm"))
    return sum(name.startswith("rdk:") for name in names)


async def once(url: str) -> None:
    async with QueueCraft(url) as qc:
        await qc.admin.declare("billing", "order.*")
        await qc.publish("order.placed", {})
        await qc.admin.queues()


async def test_no_thread_waits_for_the_garbage_collector(url: str) -> None:
    gc.collect()
    before = threads()
    gc.disable()
    try:
        async with QueueCraft(url) as qc:
            await qc.publish("order.placed", {}, unroutable="drop")
            assert threads() > before
        await once(url)
        # They end a moment after they were told to.
        await eventually(lambda: threads() <= before)
    finally:
        gc.enable()


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
        await qc.publish("order.placed", 1, delay=0.05, key="k")
        async with asyncio.timeout(20):
            await sent_on.wait()
    monkeypatch.undo()
    async with shop() as qc:
        await qc.workers[0].start()
        await qc.publish("order.placed", 2, delay=0.05, key="k")  # behind it in every topic
        await eventually(lambda: 2 in handled, timeout=20)
    assert sorted(handled) == [1, 2]
