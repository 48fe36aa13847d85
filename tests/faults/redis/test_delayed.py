"""Movers of delayed messages that race, die, or lose their Redis deliver each message."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from queuecraft import QueueCraft, QueueError
from queuecraft.facts import DelayedDelivered
from queuecraft.model.delayed import DelayedSettings
from queuecraft.runtime.delayed.delivery import HOLD
from queuecraft.testing import FakeClock
from tests.brokers.redis import Redis
from tests.faults.rabbitmq.handlers import until
from tests.faults.redis.modes import STREAMS_LATER
from tests.faults.scene import Broker
from tests.runtime.delayed.child import Child
from tests.runtime.delayed.looking import ids, noted, waiting

COUNT = 1500
IDS = [f"m-{n:04}" for n in range(COUNT)]
MOVERS = 4


@pytest.fixture
def children() -> Iterator[list[Child]]:
    born: list[Child] = []
    yield born
    for child in born:
        child.close()


def elsewhere(broker: Broker) -> str:
    """A store under another prefix: from there, messages are moved in two steps."""
    return broker.url.replace("prefix=", "prefix=shelf-")


async def fill(url: str, store: str = "") -> None:
    """Put messages there that are all due."""
    settings = DelayedSettings(store=store or None, limit=COUNT)
    async with QueueCraft(url, clock=FakeClock(start=time.time() - 100), delayed=settings) as qc:
        await qc.admin.declare("billing", "order.*")
        await asyncio.gather(
            *(qc.delayed.add("order.placed", {}, delay=1, message_id=each) for each in IDS)
        )


async def delivered(url: str, store: str = "") -> Counter[str]:
    """How often each is in its queue, when nothing waits any more."""
    settings = DelayedSettings(store=store or None, limit=COUNT)
    async with QueueCraft(url, delayed=settings) as qc:
        assert await waiting(qc) == []
        return Counter(await ids(qc))


@pytest.mark.parametrize("apart", [False, True], ids=["one step", "two steps"])
async def test_movers_that_race_move_each_message_once(
    broker: Broker, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuecraft.runtime.delayed.service.AT_ONCE", 50)
    store = elsewhere(broker) if apart else ""
    await fill(broker.url, store)
    moved: list[list[DelayedDelivered]] = []
    async with AsyncExitStack() as stack:
        settings = DelayedSettings(store=store or None, limit=COUNT)
        movers = [
            await stack.enter_async_context(QueueCraft(broker.url, delayed=settings))
            for _ in range(MOVERS)
        ]
        for each in movers:
            moved.append(noted(each, DelayedDelivered))
            await stack.enter_async_context(each.delayed.running())
        await until(lambda: none_wait(movers[0]))

    assert await delivered(broker.url, store) == Counter(IDS)
    told = [message.id for facts in moved for fact in facts for message in fact.messages]
    assert sorted(told) == IDS
    assert sum(map(bool, moved)) > 1, "there was no race"


@STREAMS_LATER
async def test_movers_that_race_and_die_beside_the_queues_move_each_message_once(
    broker: Broker, children: list[Child]
) -> None:
    await fill(broker.url)
    points = ["delayed.between", "delayed.after_move", "delayed.after_move"]
    children += [Child(broker.url, "move", limit=COUNT, dies_at=point) for point in points]
    for each in children:  # together they have moved two thirds at most
        assert await each.ends() == -9
    heirs = [Child(broker.url, "move", limit=COUNT) for _ in range(2)]
    children += heirs
    for each in heirs:
        assert await each.ends() == 0
    assert await delivered(broker.url) == Counter(IDS)


@pytest.mark.parametrize(
    ("point", "times"),
    [("delayed.after_take", 1), ("delayed.after_send", 2), ("delayed.after_forget", 1)],
)
@STREAMS_LATER
async def test_a_mover_that_dies_between_two_places_loses_nothing(
    broker: Broker, children: list[Child], point: str, times: int
) -> None:
    store = elsewhere(broker)
    await fill(broker.url, store)
    children.append(Child(broker.url, "move", store=store, limit=COUNT, dies_at=point))
    assert await children[0].ends() == -9

    settings = DelayedSettings(store=store, limit=COUNT)
    clock = FakeClock(start=time.time() + HOLD)
    async with QueueCraft(broker.url, clock=clock, delayed=settings) as qc:
        await qc.delayed.cleanup()
    found = await delivered(broker.url, store)

    assert found.keys() == set(IDS)
    assert max(found.values()) == times


@STREAMS_LATER
async def test_a_redis_killed_under_racing_movers_has_each_message_once(
    broker: Broker, redis: Redis, chance: random.Random
) -> None:
    await fill(broker.url)
    async with AsyncExitStack() as stack:
        movers = [
            await stack.enter_async_context(QueueCraft(broker.url, reconnect_delay=0.02))
            for _ in range(2)
        ]
        for each in movers:
            await stack.enter_async_context(each.delayed.running())
        for _ in range(3):
            await asyncio.sleep(chance.uniform(0, 0.05))
            await asyncio.to_thread(redis.kill)
            await asyncio.to_thread(redis.start)

        await until(lambda: none_wait(movers[0]))
    assert await delivered(broker.url) == Counter(IDS)


async def none_wait(qc: QueueCraft) -> bool:
    try:
        return await waiting(qc) == []
    except QueueError:  # Redis is gone just now
        return False
