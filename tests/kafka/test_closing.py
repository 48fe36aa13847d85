"""What a connection to Kafka leaves behind when it is closed: nothing."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from queuecraft import ConnectionLost, QueueCraft
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
