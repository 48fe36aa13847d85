"""QueueCraft on a file: what is promised above the driver holds on it too, across restarts."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from queuecraft import Event, Message, PublishError, QueueCraft, Retry, Unroutable
from queuecraft.drivers.local.sqlite import database
from queuecraft.runtime import consumer
from queuecraft.testing import Ledger
from tests.drivers.local.sqlite.file import locked, rows
from tests.runtime.support import eventually, running


@dataclass
class Order:
    id: str
    total: float = 1.0


order_placed = Event("order.placed", Order)
AT_ONCE = Retry(max_retries=2, initial_delay=0.001)


@asynccontextmanager
async def shop(path: Path) -> AsyncGenerator[QueueCraft]:
    """The application, started anew."""
    async with QueueCraft(f"local://{path}") as qc:
        yield qc


async def test_a_message_is_retried_then_kept_and_sent_back(path: Path) -> None:
    seen = Ledger()
    async with shop(path) as qc:
        billing = qc.worker("billing", retry=AT_ONCE)
        billing.on(order_placed, seen.failing("billing", times=3))
        async with running(billing):
            id = await qc.publish(order_placed, Order("o-1"))
            await seen.wait_for(billing=3)
        assert seen.attempts("billing") == [1, 2, 3]

    async with shop(path) as qc:  # the dead letter outlives the process that failed
        billing = qc.worker("billing", retry=AT_ONCE)
        billing.on(order_placed, seen.recording("billing"))
        (letter,) = await qc.dead_letters.list("billing")
        assert letter.id == id
        assert (await qc.dead_letters.redrive("billing")).moved == 1
        async with running(billing):
            await seen.wait_for(billing=4)
        assert (await qc.admin.inspect("billing")).in_flight == 0
    assert seen.attempts("billing") == [1, 2, 3, 1]


async def test_a_retry_that_was_waiting_survives_a_restart_with_its_count(path: Path) -> None:
    seen = Ledger()
    async with shop(path) as qc:
        billing = qc.worker("billing", retry=Retry(max_retries=2, initial_delay=0.5))
        billing.on(order_placed, seen.failing("billing", times=1))
        async with running(billing):
            await qc.publish(order_placed, Order("o-1"))
            await seen.wait_for(billing=1)
        assert (await qc.admin.inspect("billing")).delayed == 1

    async with shop(path) as qc:
        billing = qc.worker("billing", retry=AT_ONCE)
        billing.on(order_placed, seen.recording("billing"))
        async with running(billing):
            await seen.wait_for(billing=2)
    assert seen.attempts("billing") == [1, 2]


async def test_messages_of_one_key_are_handled_in_order(path: Path) -> None:
    got: dict[str | None, list[str]] = defaultdict(list)
    async with shop(path) as qc:
        worker = qc.worker("audit", concurrency=4, ordering="key", retry=AT_ONCE)
        failed: set[str] = set()

        @worker.on(order_placed)
        async def note(order: Order, message: Message[Order]) -> None:
            if order.id in ("5", "6") and order.id not in failed:
                failed.add(order.id)
                raise RuntimeError("again, please")
            got[message.key].append(order.id)

        async with running(worker):
            for number in range(60):
                await qc.publish(order_placed, Order(str(number)), key=f"k-{number % 3}")
            await eventually(lambda: sum(map(len, got.values())) == 60)
    assert got == {f"k-{k}": [str(n) for n in range(60) if n % 3 == k] for k in range(3)}


async def test_a_stream_takes_up_where_the_last_one_ended(path: Path) -> None:
    async with shop(path) as qc, qc.subscribe("audit", order_placed) as stream:
        await stream.open()
        for number in range(3):
            await qc.publish(order_placed, Order(str(number)))
        assert (await anext(stream)).payload.id == "0"
        assert (await anext(stream)).payload.id == "1"  # the first is acknowledged by this

    async with shop(path) as qc, qc.subscribe("audit", order_placed) as stream:
        again = [await anext(stream) for _ in range(2)]
        assert [each.payload.id for each in again] == ["1", "2"]


async def test_nobody_to_publish_to_is_said_until_a_worker_was_there_once(path: Path) -> None:
    seen = Ledger()
    async with shop(path) as qc:
        with pytest.raises(Unroutable):
            await qc.publish(order_placed, Order("o-0"))
    async with shop(path) as qc:
        billing = qc.worker("billing")
        billing.on(order_placed, seen.recording("billing"))
        async with running(billing):
            pass

    async with shop(path) as qc:  # a publisher alone: the binding is in the file
        await qc.publish(order_placed, Order("o-1"))
    async with shop(path) as qc:
        billing = qc.worker("billing")
        billing.on(order_placed, seen.recording("billing"))
        async with running(billing):
            await seen.wait_for(billing=1)
    assert [call.payload for call in seen.calls] == [Order("o-1")]
    assert [call.redeliveries for call in seen.calls] == [0]


async def test_a_publish_that_waits_for_the_file_ends_with_its_timeout(path: Path) -> None:
    async with QueueCraft(f"local://{path}", publish_timeout=1) as qc:
        await qc.admin.declare("billing", order_placed.name)
        await qc.publish(order_placed, Order("o-1"))
        with locked(path), pytest.raises(PublishError, match="within 1 s") as caught:
            async with asyncio.timeout(database.PATIENCE / 2):  # the driver itself would go on
                await qc.publish(order_placed, Order("o-2"))
        assert caught.value.outcome == "unknown"  # it may still be stored, once the file is free


async def test_a_worker_that_was_stopped_while_the_file_was_held_can_be_started_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "LAST_WORDS", 0.01)
    seen = Ledger()
    async with shop(path) as qc:
        billing = qc.worker("billing", ordering="key")
        billing.on(order_placed, seen.recording("billing"))
        await billing.start()
        await qc.publish(order_placed, Order("o-1"), key="one")
        await seen.wait_for(billing=1)
        with locked(path):
            await billing.stop(timeout=0.01)
        async with running(billing):
            await qc.publish(order_placed, Order("o-2"), key="one")
            await seen.wait_for(billing=2)
    assert seen.calls[-1].payload == Order("o-2")


async def test_a_worker_that_others_took_for_dead_connects_again(path: Path) -> None:
    seen = Ledger()
    async with QueueCraft(f"local://{path}", reconnect_delay=0.001) as qc:
        billing = qc.worker("billing")
        billing.on(order_placed, seen.recording("billing"))
        async with running(billing):
            await qc.publish(order_placed, Order("o-1"))
            await seen.wait_for(billing=1)
            rows(path, "DELETE FROM consumer; DELETE FROM session")
            await qc.publish(order_placed, Order("o-2"))
            await seen.wait_for(billing=2)
    assert [call.payload.id for call in seen.calls] == ["o-1", "o-2"]
