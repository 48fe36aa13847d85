"""Only one consumer at a time gets messages where the order of keys depends on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from queuecraft import Event, QueueCraft
from queuecraft.drivers.base import Outgoing, Queue
from queuecraft.drivers.local.sqlite import SqliteDriver
from tests.runtime.support import eventually

ORDERED = Queue("billing", single_active=True)


@pytest.fixture
async def first(tmp_path: Path) -> AsyncIterator[SqliteDriver]:
    driver = SqliteDriver(tmp_path / "queue.db")
    await driver.open()
    await driver.declare(ORDERED)
    yield driver
    await driver.close()


@pytest.fixture
async def second(first: SqliteDriver, tmp_path: Path) -> AsyncIterator[SqliteDriver]:
    driver = SqliteDriver(tmp_path / "queue.db")
    await driver.open()
    yield driver
    await driver.close()


def messages(*names: str) -> list[Outgoing]:
    return [Outgoing(b"", name, queue="billing") for name in names]


async def test_the_second_consumer_stands_by(first: SqliteDriver, second: SqliteDriver) -> None:
    active = await first.subscribe(ORDERED, prefetch=1)
    standing_by = await second.subscribe(ORDERED, prefetch=10)
    await second.send(messages("m-1", "m-2"))
    assert not await standing_by.receive(10, 0)
    (delivery,) = await active.receive(10, 5)
    assert delivery.sent.id == "m-1"


async def test_it_takes_over_when_the_first_is_gone(
    first: SqliteDriver, second: SqliteDriver
) -> None:
    active = await first.subscribe(ORDERED, prefetch=1)
    standing_by = await second.subscribe(ORDERED, prefetch=10)
    await first.send(messages("m-1", "m-2"))
    await active.receive(1, 5)
    waiting = asyncio.create_task(standing_by.receive(10, 30))
    await asyncio.sleep(0)
    await active.close()
    taken = await waiting
    assert [(each.sent.id, each.redeliveries) for each in taken] == [("m-1", 1), ("m-2", 0)]


async def test_one_that_wants_to_be_the_only_one_waits_for_those_before_it(
    first: SqliteDriver, second: SqliteDriver
) -> None:
    plain = await first.subscribe(Queue("billing"), prefetch=1)
    ordered = await second.subscribe(ORDERED, prefetch=10)
    await first.send(messages("m-1"))
    assert not await ordered.receive(1, 0)
    assert await plain.receive(1, 5)


async def test_ordered_workers_of_two_apps_keep_the_order_of_a_key(tmp_path: Path) -> None:
    placed = Event("order.placed", int)
    url = f"local://{tmp_path}/queue.db"
    seen: list[int] = []

    async def handle(number: int) -> None:
        await asyncio.sleep(0.0005 * (number % 3))
        seen.append(number)

    apps = [QueueCraft(url), QueueCraft(url)]
    workers = [app.worker("billing", ordering="key", concurrency=4) for app in apps]
    for worker in workers:
        worker.on(placed, handle)
    async with apps[0], apps[1]:
        for worker in workers:
            await worker.start()
        for number in range(60):
            await apps[1].publish(placed, number, key="one")
        await eventually(lambda: len(seen) >= 30)
        await workers[0].stop()
        await eventually(lambda: len(seen) >= 60)
        assert workers[1].counters.succeeded > 0, "the second never took over"
    assert seen == list(range(60))
