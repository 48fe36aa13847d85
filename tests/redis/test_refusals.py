"""What the server says no to, and what a user is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from queuecraft import Message, QueueCraft, Retry
from queuecraft.drivers.base import Queue, Rejected
from queuecraft.drivers.redis import drivers, scripts
from queuecraft.drivers.redis.live import LiveSubscription
from queuecraft.drivers.target import Target
from queuecraft.facts import Reconnected
from queuecraft.model.errors import ConfigError, ConnectionLost, PublishError, QueueError
from queuecraft.testing import Ledger
from tests.brokers.redis import RedisServer
from tests.redis.place import Place, bound, emptied, event, eventually, ids, received, sent, to


@pytest.fixture(scope="module")
def small() -> Iterator[RedisServer]:
    """A server whose memory can be taken away."""
    with RedisServer({"maxmemory-policy": "noeviction"}) as server:
        yield server


@contextmanager
def out_of_memory(server: RedisServer) -> Generator[None]:
    """It has used up what it may use."""
    server.call("CONFIG", "SET", "maxmemory", "1")
    try:
        yield
    finally:
        server.call("CONFIG", "SET", "maxmemory", "0")


@asynccontextmanager
async def out_of_disk(server: RedisServer) -> AsyncGenerator[None]:
    """It could not save, and takes no writes until it can."""

    async def has_failed() -> bool:
        told = await asyncio.to_thread(server.call, "INFO", "persistence")
        return b"rdb_last_bgsave_status:err" in told

    (server.folder / "dump.rdb").mkdir()
    server.call("CONFIG", "SET", "save", "3600 1")
    server.call("BGSAVE")
    try:
        await eventually(has_failed)
        yield
    finally:
        (server.folder / "dump.rdb").rmdir()
        server.call("CONFIG", "SET", "save", "")
        server.call("SAVE")
        (server.folder / "dump.rdb").unlink()


@pytest.mark.parametrize("mode", ["list", "stream"])
async def test_a_server_out_of_memory_rejects_and_workers_empty_it(
    small: RedisServer, mode: str
) -> None:
    place = Place(f"{small.url}?prefix=oom-{mode}")
    driver = await place.driver(mode)
    other = await place.driver(mode)
    await driver.declare(bound("billing", "order.placed", dead_letters=None))
    await driver.declare(Queue("elsewhere"))
    await sent(driver, *(to("billing", f"m-{n}") for n in range(6)))
    dying = await other.subscribe(Queue("billing"), prefetch=2)
    consumer = await driver.subscribe(Queue("billing"), prefetch=10)
    assert len(await received(dying, 2)) == 2
    small.call("CONFIG", "SET", "maxmemory", "1")
    try:
        messages = [event("order.placed"), to("billing"), to("billing", due_at=4e9)]
        for message in messages:
            (receipt,) = await driver.send([message])
            assert isinstance(receipt, Rejected)
            assert isinstance(receipt.error, PublishError)
            assert "out of memory" in receipt.error.message
        held = await received(consumer, 4)
        await consumer.release(held[:1])
        held = [*held[1:], *await received(consumer)]
        assert list(await consumer.ack(held)) == []
        await dying.close()
        got = await received(consumer, 2)
        assert [(each.sent.id, each.redeliveries) for each in got] == [("m-0", 1), ("m-1", 1)]
    finally:
        small.call("CONFIG", "SET", "maxmemory", "0")
        await place.close()


async def test_at_most_once_what_is_released_without_memory_is_not_lost(small: RedisServer) -> None:
    place = Place(f"{small.url}?prefix=once")
    driver = await place.driver(redis_delivery="at-most-once")
    await driver.declare(Queue("billing"))
    await sent(driver, *(to("billing", f"m-{n}") for n in range(3)))
    consumer = await driver.subscribe(Queue("billing"), prefetch=5)
    held = await received(consumer, 3)
    with out_of_memory(small):
        await consumer.release(held)
    (info,) = await driver.inspect(["billing"])
    assert info.ready == 3
    assert ids(await received(consumer, 3)) == ["m-0", "m-1", "m-2"]
    await place.close()


async def test_what_was_heard_is_kept_at_the_end_without_memory(small: RedisServer) -> None:
    place = Place(f"{small.url}?prefix=heard")
    driver = await place.driver("pubsub")
    await driver.declare(bound("billing", "order.*"))
    consumer = await driver.subscribe(Queue("billing"), prefetch=5)
    assert isinstance(consumer, LiveSubscription)
    await sent(driver, event("order.placed", "m-1"), event("order.placed", "m-2"))

    async def both_are_heard() -> bool:
        return len(consumer._heard) == 2

    await eventually(both_are_heard)
    with out_of_memory(small):
        await consumer.close()
    assert ids(await driver.peek("billing", 5)) == ["m-1", "m-2"]
    await place.close()


@pytest.mark.parametrize("mode", ["list", "stream"])
async def test_a_worker_that_is_started_without_memory_empties_its_queue(
    small: RedisServer, mode: str
) -> None:
    seen = Ledger()
    url = f"{small.url}?prefix=started-{mode}&mode={mode}"
    async with QueueCraft(url) as qc:
        await qc.admin.declare("billing", "order.placed")
        await qc.publish_many("order.placed", range(5))
    qc = QueueCraft(url)
    billing = qc.worker("billing").on("order.placed", seen.recording("billing"))
    with out_of_memory(small):
        async with qc:
            await billing.start()
            await seen.wait_for(billing=5)
            with pytest.raises(PublishError, match="out of memory") as refused:
                await qc.publish("order.placed", 5)
            assert refused.value.outcome == "rejected"
            await billing.stop()
            info = await qc.admin.inspect("billing")
    assert (info.ready, info.in_flight) == (0, 0)


@pytest.mark.parametrize("mode", ["list", "stream"])
async def test_what_fails_without_memory_is_retried_and_kept_and_the_worker_goes_on(
    small: RedisServer, mode: str
) -> None:
    seen = Ledger()
    once = Retry(max_retries=1, initial_delay=0.01)
    qc = QueueCraft(f"{small.url}?prefix=failing-{mode}&mode={mode}", retry=once)
    billing = qc.worker("billing").on("order.placed", seen.failing("billing", times=None))

    async def are_dead() -> bool:
        return (await qc.admin.inspect("billing")).dead == 3

    async with qc:
        await qc.publish_many("order.placed", range(3))
        with out_of_memory(small):
            await billing.start()
            await seen.wait_for(billing=6)
            await eventually(are_dead)
            assert billing.paused is None
            await billing.stop()
    assert sorted(seen.attempts("billing")) == [1, 1, 1, 2, 2, 2]


async def test_a_publish_after_a_reconnect_without_memory_is_refused_and_does_not_wait(
    small: RedisServer,
) -> None:
    seen, again = Ledger(), asyncio.Event()
    qc = QueueCraft(f"{small.url}?prefix=again&mode=list", reconnect_delay=0.05)
    qc.observe(Reconnected, lambda _: again.set())
    billing = qc.worker("billing").on("order.placed", seen.recording("billing"))
    async with qc:
        await billing.start()
        await qc.publish("order.placed", 1)
        await seen.wait_for(billing=1)
        with out_of_memory(small):
            small.call("CLIENT", "KILL", "TYPE", "normal")
            async with asyncio.timeout(5):
                await again.wait()
            with pytest.raises(PublishError, match="out of memory") as refused:
                await qc.publish("order.placed", 2)
            assert refused.value.outcome == "rejected"
        await billing.stop()


async def test_a_server_that_evicts_is_warned_of(
    small: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    small.call("CONFIG", "SET", "maxmemory", "100mb")
    small.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    place = Place(f"{small.url}?prefix=evicts")
    try:
        await place.driver()
    finally:
        small.call("CONFIG", "SET", "maxmemory", "0")
        small.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
        await place.close()
    assert "noeviction (it is allkeys-lru)" in caplog.text


async def test_a_server_that_cannot_save_rejects(small: RedisServer) -> None:
    place = Place(f"{small.url}?prefix=misconf")
    driver = await place.driver()
    await driver.declare(Queue("billing"))
    async with out_of_disk(small):
        (receipt,) = await driver.send([to("billing")])
    assert isinstance(receipt, Rejected)
    assert "cannot write to its disk" in receipt.error.message
    await place.close()


@pytest.mark.parametrize("mode", ["list", "stream"])
async def test_what_a_consumer_held_that_could_not_leave_comes_back_when_it_can(
    small: RedisServer, mode: str
) -> None:
    place = Place(f"{small.url}?prefix=leaving-{mode}")
    driver = await place.driver(mode)
    await driver.declare(Queue("billing"))
    await sent(driver, to("billing", "m-0"), to("billing", "m-1"))
    consumer = await driver.subscribe(Queue("billing"), prefetch=5)
    held = await received(consumer, 2)
    async with out_of_disk(small):
        for deed in (consumer.receive(1, 0), consumer.close()):
            with pytest.raises(QueueError, match="MISCONF"):
                await deed
        await consumer.close()  # nor does it help to ask once more
    again = await driver.subscribe(Queue("billing"), prefetch=5)
    got = await received(again, 2)
    assert [(each.sent.id, each.redeliveries) for each in got] == [("m-0", 1), ("m-1", 1)]
    assert list(await consumer.ack(held)) == held
    assert list(await again.ack(got)) == []
    (info,) = await driver.inspect(["billing"])
    assert (info.ready, info.in_flight, info.consumers) == (0, 0, 1)
    await place.close()


@pytest.mark.parametrize("mode", ["list", "stream"])
async def test_what_a_consumer_held_that_could_not_leave_goes_back_with_its_session(
    small: RedisServer, mode: str
) -> None:
    place = Place(f"{small.url}?prefix=ending-{mode}")
    driver, other = await place.driver(mode), await place.driver(mode)
    await driver.declare(Queue("billing"))
    await sent(driver, to("billing"))
    consumer = await driver.subscribe(Queue("billing"), prefetch=5)
    await received(consumer)
    async with out_of_disk(small):
        with pytest.raises(QueueError, match="MISCONF"):
            await consumer.close()
    await driver.close()
    assert driver._leaving == {}
    (info,) = await other.inspect(["billing"])
    assert (info.ready, info.in_flight, info.consumers) == (1, 0, 0)
    await place.close()


@pytest.mark.parametrize("mode", ["list", "stream"])
async def test_what_a_worker_held_when_the_disk_was_full_is_handled_again(
    small: RedisServer, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen, begun, go_on = Ledger(), asyncio.Event(), asyncio.Event()
    qc = QueueCraft(f"{small.url}?prefix=ghost-{mode}&mode={mode}")
    billing = qc.worker("billing", prefetch=10, concurrency=2)

    @billing.on("order.placed")
    async def charge(number: int, message: Message[int]) -> None:
        begun.set()
        await go_on.wait()
        seen.record("billing", message)
        if len(seen.ids()) == 1:  # a success would not be run again
            raise OSError("no bank")

    async def has_left() -> bool:
        return "leaving billing" in caplog.text

    async with qc:
        await billing.start()
        await qc.publish("order.placed", 0)
        await begun.wait()
        with caplog.at_level(logging.DEBUG, "queuecraft"):
            async with out_of_disk(small):
                billing.pause()
                billing.resume()  # and it asks for more
                await eventually(has_left)
        go_on.set()
        await seen.wait_for(billing=2)
        await billing.stop()
        info = await qc.admin.inspect("billing")
    assert len(set(seen.ids())) == 1
    assert (info.ready, info.in_flight) == (0, 0)


async def test_what_cannot_go_back_at_once_goes_back_once(place: Place) -> None:
    driver = await place.driver()
    await driver.declare(Queue("billing"))
    await sent(driver, to("billing", "urgent", priority=5), to("billing", "usual"))
    consumer = await driver.subscribe(Queue("billing"), prefetch=5)
    await received(consumer, 2)
    await place.call("SET", place.key("queue.5:billing"), "mine")
    with pytest.raises(QueueError, match="WRONGTYPE"):
        await consumer.close()
    session = consumer.consumer.rpartition("-")[0]
    for _ in range(3):
        with pytest.raises(QueueError, match="WRONGTYPE"):
            await driver._eval("test", scripts.LEAVE, [session, "billing", consumer.consumer])
    await place.call("DEL", place.key("queue.5:billing"))
    again = await driver.subscribe(Queue("billing"), prefetch=5)
    assert sorted(ids(await received(again, 2))) == ["urgent", "usual"]
    (info,) = await driver.inspect(["billing"])
    assert (info.ready, info.in_flight, info.consumers) == (0, 2, 1)


async def test_a_replica_is_no_place_for_a_queue(small: RedisServer) -> None:
    with RedisServer(more=f"replicaof 127.0.0.1 {small.port()}") as replica:
        (driver,) = drivers(Target(f"{replica.url}?mode=list"))
        with pytest.raises(ConnectionLost, match=f"replica of 127.0.0.1:{small.port()}"):
            await driver.open()
        await driver.close()


async def test_a_master_that_becomes_a_replica_is_left(small: RedisServer) -> None:
    with RedisServer() as server:
        place = Place(f"{server.url}?prefix=demoted")
        driver = await place.driver()
        await driver.declare(Queue("billing"))
        consumer = await driver.subscribe(Queue("billing"), prefetch=5)
        server.call("REPLICAOF", "127.0.0.1", small.port())
        with pytest.raises(ConnectionLost, match="READONLY"):
            await driver.send([to("billing")])
        with pytest.raises(ConnectionLost, match="READONLY"):
            await consumer.receive(1, 0)
        await place.close()


async def test_a_wrong_or_missing_password_is_told_without_showing_it() -> None:
    with RedisServer({"requirepass": "s3cret"}) as server:
        right = Place(f"{server.url}?prefix=locked")
        await right.driver()
        await right.close()
        bare = f"127.0.0.1:{server.port()}"
        for url, said in (
            (f"redis://{bare}?mode=list", "wants a password"),
            (f"redis://:hunter2@{bare}?mode=list", "the password is wrong"),
            (f"redis://ada:hunter2@{bare}?mode=list", "user 'ada' or the password is wrong"),
        ):
            (driver,) = drivers(Target(url))
            with pytest.raises(ConnectionLost, match=said) as caught:
                await driver.open()
            assert "hunter2" not in str(caught.value)
            assert "hunter2" not in repr(driver)
            await driver.close()


async def test_a_password_that_nobody_asked_for_is_told(small: RedisServer) -> None:
    (driver,) = drivers(Target(f"redis://:hunter2@127.0.0.1:{small.port()}?mode=list"))
    with pytest.raises(ConnectionLost, match="the server has none"):
        await driver.open()
    await driver.close()


async def test_a_database_that_is_not_there_is_a_mistake(small: RedisServer) -> None:
    (driver,) = drivers(Target(f"redis://127.0.0.1:{small.port()}/99?mode=list"))
    with pytest.raises(ConfigError, match="database 99"):
        await driver.open()
    await driver.close()


async def test_a_user_with_the_rights_of_the_guide_can_do_everything(small: RedisServer) -> None:
    rights = ["on", ">s3cret", "~{allowed}:*", "&{allowed}:*", "+@all", "-@admin", "-@dangerous"]
    small.call("ACL", "SETUSER", "ada", *rights, "+info", "+role", "+client")
    url = f"redis://ada:s3cret@127.0.0.1:{small.port()}/0"
    for mode in ("list", "stream", "pubsub"):
        place = Place(f"{url}?prefix=allowed")
        driver = await place.driver(mode)
        await driver.declare(bound(mode, "order.placed"))
        consumer = await driver.subscribe(Queue(mode), prefetch=5)
        await sent(driver, event("order.placed"))
        got = await received(consumer)
        assert list(await consumer.ack(got)) == []
        await driver.delete(mode)
        await place.close()
    place = Place(f"{url}?prefix=forbidden")
    with pytest.raises(QueueError, match=r"NOPERM.*give the user"):
        await (await place.driver()).declare(Queue("billing"))
    await place.close()


async def test_a_user_who_may_hardly_ask_anything_can_still_work(small: RedisServer) -> None:
    rights = ["on", ">s3cret", "~{bare}:*", "+@all", "-@admin", "-@dangerous", "-client", "+hello"]
    small.call("ACL", "SETUSER", "bob", *rights)
    place = Place(f"redis://bob:s3cret@127.0.0.1:{small.port()}/0?prefix=bare")
    driver = await place.driver()
    await driver.declare(Queue("billing"))
    consumer = await driver.subscribe(Queue("billing"), prefetch=5)
    assert driver.watch.deaf
    assert await emptied(consumer) == []
    await sent(driver, to("billing"))
    assert ids(await received(consumer)) == ["m-1"]
    await place.close()


@pytest.mark.parametrize("mode", ["list", "stream"])
async def test_a_key_of_another_type_fails_its_own_message_alone(place: Place, mode: str) -> None:
    driver = await place.driver(mode)
    for name in ("billing", "audit"):
        await driver.declare(Queue(name))
    await place.call("DEL", place.key("stream:billing"))
    for key in ("queue:billing", "stream:billing"):
        await place.call("SET", place.key(key), "mine")
    first, second = await driver.send([to("billing"), to("audit")])
    assert isinstance(first, Rejected)
    assert "WRONGTYPE" in first.error.message
    assert not isinstance(second, Rejected)
    with pytest.raises(QueueError, match="WRONGTYPE"):
        await (await driver.subscribe(Queue("billing"), prefetch=1)).receive(1, 0)


async def test_what_cannot_be_encoded_is_rejected_alone(place: Place) -> None:
    driver = await place.driver()
    await driver.declare(Queue("billing"))
    odd = to("billing", "odd", headers={"n": 2**80})
    good, bad, fine = await driver.send([to("billing", "a"), odd, to("billing", "b")])
    assert isinstance(bad, Rejected)
    assert not isinstance(good, Rejected)
    assert not isinstance(fine, Rejected)
    assert all(isinstance(each, Rejected) for each in await driver.send([odd, odd], atomic=True))
    assert ids(await emptied(await driver.subscribe(Queue("billing"), prefetch=5))) == ["a", "b"]


async def test_a_queue_is_kept_in_one_way(place: Place) -> None:
    lists, streams = await place.driver("list"), await place.driver("stream")
    await lists.declare(bound("billing", "order.*"))
    with pytest.raises(QueueError, match="mode='list', 'stream' is asked for"):
        await streams.declare(Queue("billing"))
    await streams.declare(bound("audit", "order.*"))
    await sent(streams, event("order.placed"))
    for driver, name in ((streams, "billing"), (lists, "audit")):
        assert ids(await received(await driver.subscribe(Queue(name), prefetch=5))) == ["m-1"]


async def test_an_exclusive_queue_has_one_consumer(place: Place) -> None:
    driver = await place.driver()
    await driver.declare(Queue("mine", exclusive=True, auto_delete=True))
    consumer = await driver.subscribe(Queue("mine"), prefetch=1)
    with pytest.raises(QueueError, match="exclusive"):
        await driver.subscribe(Queue("mine"), prefetch=1)
    await consumer.close()
    assert list(await driver.inspect(["mine"])) == []
