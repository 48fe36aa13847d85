"""Delayed messages in Redis: in that of the queues, where they move in one step, or in another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from queuecraft import ConnectionLost, Event, Exchange, Queue, QueueCraft, QueueError
from queuecraft.drivers.target import Target
from queuecraft.model.delayed import DelayedSettings
from queuecraft.runtime.delayed.server import OwnServer, open_store
from queuecraft.stores.base import OneStepStore, Which
from queuecraft.stores.redis import RedisDelayedStore, RedisQueueStore
from queuecraft.testing import FakeClock
from tests.brokers.redis import Redis, RedisServer
from tests.runtime.delayed.looking import ids, ready, waiting

order_placed = Event("order.placed", dict)


@pytest.fixture(params=["list", "stream"])
def url(redis_url: str, request: pytest.FixtureRequest) -> str:
    return f"{redis_url}&mode={request.param}"


@pytest.fixture
async def qc(url: str, clock: FakeClock) -> AsyncIterator[QueueCraft]:
    async with QueueCraft(url, clock=clock) as qc:
        await qc.admin.declare("billing", "order.*")
        yield qc


async def until_moved(qc: QueueCraft, left: int = 0) -> None:
    """Until no more than so many wait: answers of a real server are nothing a clock waits for."""
    async with asyncio.timeout(20):
        while len(await waiting(qc)) > left:
            pass


async def test_beside_the_queues_messages_move_in_one_step(qc: QueueCraft) -> None:
    async with qc.delayed._place.store() as store:
        assert isinstance(store, OneStepStore)


async def test_a_message_is_moved_when_it_is_due_and_not_before(
    qc: QueueCraft, clock: FakeClock
) -> None:
    await qc.delayed.add(order_placed, {"n": 1}, delay=60, message_id="m-1")
    async with qc.delayed._place.store() as store:
        assert isinstance(store, OneStepStore)
        assert not await store.move(Which(clock.now() + 59.999, 10))
        assert len(await store.move(Which(clock.now() + 60, 10))) == 1
    assert (await ids(qc), await waiting(qc)) == (["m-1"], [])


async def test_the_service_moves_events_and_what_is_for_one_queue(
    qc: QueueCraft, clock: FakeClock
) -> None:
    await qc.admin.declare("audit", "#")
    async with qc.delayed.running():
        await qc.delayed.add(order_placed, {"n": 1}, delay=0)
        await qc.delayed.add(Queue("audit"), {"n": 2}, delay=0)
        await until_moved(qc)
    assert await ready(qc) == [{"n": 1}]
    assert await ready(qc, "audit") == [{"n": 1}, {"n": 2}]


async def test_movers_that_race_move_each_message_once(url: str, qc: QueueCraft) -> None:
    for n in range(300):
        await qc.delayed.add(order_placed, {}, delay=0, message_id=f"m-{n:03}")
    now = 2_000_000_000.0

    async def race() -> int:
        store = await open_store(Target(url), with_queues=True)
        assert isinstance(store, RedisQueueStore)
        moved = 0
        while some := await store.page(1, (0.0, "")):
            assert some
            moved += len(await store.move(Which(now, 7)))
        await store.close()
        return moved

    assert sum(await asyncio.gather(*(race() for _ in range(8)))) == 300
    assert sorted(await ids(qc)) == [f"m-{n:03}" for n in range(300)]


async def test_what_has_changed_since_it_was_looked_at_is_left_alone(
    qc: QueueCraft, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await qc.delayed.add(order_placed, {"old": True}, delay=0, message_id="m-1")
    async with qc.delayed._place.store() as store:
        assert isinstance(store, RedisQueueStore)
        seen = await store.page(10, (0.0, ""))
        await qc.delayed.cancel("m-1")
        await qc.delayed.add(order_placed, {"old": False}, delay=60, message_id="m-1")
        assert await store._moved(seen, clock.now()) == ([], [])
    assert (await ready(qc), await waiting(qc)) == ([], ["m-1"])


async def test_an_event_that_is_routed_by_its_headers_gets_there(
    qc: QueueCraft, clock: FakeClock
) -> None:
    exchange = Exchange("by-headers", "headers")
    await qc.admin.bind("billing", exchange=exchange, headers={"tenant": "t1"})
    event = Event("user.created", dict, exchange=exchange)
    await qc.delayed.add(event, {"n": 1}, delay=0, headers={"tenant": "t1"})
    await qc.delayed.add(event, {"n": 2}, delay=0, headers={"tenant": "t2"})
    result = await qc.delayed.cleanup()
    assert (result.cleaned, result.refused) == (1, 1)
    assert await ready(qc) == [{"n": 1}]


async def test_what_is_refused_waits_and_is_tried_again(qc: QueueCraft, clock: FakeClock) -> None:
    await qc.delayed.add("user.created", {"n": 1}, delay=0)
    assert (await qc.delayed.cleanup()).refused == 1
    (found,) = await qc.delayed.list()
    assert found.failures == 1
    await qc.admin.bind("billing", "user.*")
    assert (await qc.delayed.cleanup()).cleaned == 1
    assert await ready(qc) == [{"n": 1}]


@pytest.mark.parametrize("policy", ["dead_letter", "drop"])
async def test_overdue_messages_are_cleaned_up_by_the_policy(
    url: str, clock: FakeClock, policy: str
) -> None:
    settings = DelayedSettings(policy=policy, batch=10)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    async with QueueCraft(url, clock=clock, delayed=settings) as qc:
        for n in range(25):
            await qc.delayed.add(Queue("billing"), {"n": n}, delay=1)
        await clock.advance(100)
        assert (await qc.delayed.cleanup()).cleaned == 25
        assert await waiting(qc) == []
        if policy == "dead_letter":
            assert await qc.dead_letters.count("delayed") == 25


async def test_another_redis_than_that_of_the_queues_will_do(
    redis_url: str, tmp_path: Path, clock: FakeClock
) -> None:
    settings = DelayedSettings(store=redis_url)
    async with QueueCraft(f"local://{tmp_path}/q.db", clock=clock, delayed=settings) as qc:
        await qc.admin.declare("billing", "order.*")
        async with qc.delayed._place.store() as kept:
            assert isinstance(kept, RedisDelayedStore)
            assert not isinstance(kept, OneStepStore)
        async with qc.delayed.running():
            await qc.delayed.add(order_placed, {"n": 1}, delay=0)
            await until_moved(qc)
        assert await ready(qc) == [{"n": 1}]


async def test_two_prefixes_know_nothing_of_each_other(redis: Redis, clock: FakeClock) -> None:
    with redis.prefix() as first, redis.prefix() as second:
        one, other = (QueueCraft(f"{url}&mode=list", clock=clock) for url in (first, second))
        await _know_nothing_of_each_other(one, other)


async def _know_nothing_of_each_other(one: QueueCraft, other: QueueCraft) -> None:
    async with one, other:
        await one.delayed.add(order_placed, {}, delay=60)
        assert (await one.delayed.stats()).size == 1
        assert (await other.delayed.stats()).size == 0


async def test_a_connection_that_was_cut_is_made_anew_when_it_is_needed(qc: QueueCraft) -> None:
    await qc.delayed.add(order_placed, {}, delay=60, message_id="m-1")
    async with qc.delayed._place.store() as store:
        assert isinstance(store, RedisQueueStore)
        assert isinstance(store._server, OwnServer)
        store._server._client.abort(ConnectionLost("cut"))
    assert store.is_lost
    assert await waiting(qc) == ["m-1"]
    await qc.delayed.add(order_placed, {}, delay=60, message_id="m-2")
    assert (await qc.delayed.stats()).size == 2


async def test_a_server_that_dies_and_comes_back_has_lost_nothing(redis: Redis, url: str) -> None:
    async with QueueCraft(url, reconnect_delay=0.05) as qc:
        await qc.admin.declare("billing", "order.*")
        async with qc.delayed.running():
            for n in range(20):
                await qc.delayed.add(order_placed, {}, delay=0.5, message_id=f"m-{n:02}")
            redis.kill()
            redis.start()
            async with asyncio.timeout(30):
                while len(await _patiently(qc)) < 20:
                    pass
        assert await _patiently(qc) == [f"m-{n:02}" for n in range(20)]
        assert await waiting(qc) == []


async def _patiently(qc: QueueCraft) -> list[str]:
    try:
        return sorted(await ids(qc))
    except ConnectionLost:
        return []


async def test_a_server_out_of_memory_takes_no_more_and_still_delivers(
    redis: Redis, clock: FakeClock
) -> None:
    with RedisServer() as server:
        async with QueueCraft(f"{server.url}?mode=list", clock=clock) as qc:
            await qc.admin.declare("billing", "order.*")
            for n in range(20):
                await qc.delayed.add(order_placed, {}, delay=1, message_id=f"m-{n:02}")
            server.call("CONFIG", "SET", "maxmemory", "1")
            with pytest.raises(QueueError, match="out of memory"):
                await qc.delayed.add(order_placed, {}, delay=1)
            await clock.advance(1)
            async with qc.delayed._place.store() as store:
                assert isinstance(store, OneStepStore)
                moved = await store.move(Which(clock.now(), 100))
            assert [each.error for each in moved] == [None] * 20
            server.call("CONFIG", "SET", "maxmemory", "0")
            assert (len(await ids(qc)), await waiting(qc)) == (20, [])


async def test_a_store_that_does_not_answer_is_said_to_be_so(clock: FakeClock) -> None:
    settings = DelayedSettings(store="redis://127.0.0.1:1")
    async with QueueCraft(clock=clock, delayed=settings) as qc:
        with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:1"):
            await qc.delayed.stats()
