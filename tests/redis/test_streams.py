"""Streams: what they keep for others, and what they do not mix up."""

from __future__ import annotations

from queuecraft.drivers.base import Move, Queue
from tests.brokers.redis import RedisServer
from tests.redis.place import Place, emptied, ids, received, sent, to


async def test_a_handled_entry_is_gone(place: Place) -> None:
    driver = await place.driver("stream")
    await driver.declare(Queue("billing"))
    consumer = await driver.subscribe(Queue("billing"), prefetch=5)
    await sent(driver, *(to("billing", f"m-{n}") for n in range(3)))
    assert list(await consumer.ack(await received(consumer, 3))) == []
    assert await place.call("XLEN", place.key("stream:billing")) == 0


async def test_so_many_handled_entries_are_retained(place: Place) -> None:
    driver = await place.driver("stream", url=f"{place.url}&retain=4")
    await driver.declare(Queue("billing"))
    await driver.declare(Queue("elsewhere"))
    consumer = await driver.subscribe(Queue("billing"), prefetch=5)
    await sent(driver, *(to("billing", f"m-{n}") for n in range(10)))
    for _ in range(2):
        got = await received(consumer, 4)
        assert list(await consumer.ack(got)) == []
    (one, two) = await received(consumer, 2)
    (info,) = await driver.inspect(["billing"])
    assert (info.ready, info.in_flight) == (0, 2)
    assert await place.call("XLEN", place.key("stream:billing")) == 6  # four handled, two held
    await consumer.release([two])
    await consumer.move([Move(one, to("elsewhere", "moved"))])
    (info,) = await driver.inspect(["billing"])
    assert (info.ready, info.in_flight) == (1, 0)
    assert ids(await driver.peek("billing", 5)) == ["m-9"]
    assert await driver.purge("billing") == 1
    assert await place.call("XLEN", place.key("stream:billing")) == 4
    assert await emptied(consumer) == []


async def test_what_was_given_back_comes_before_what_nobody_has_seen(place: Place) -> None:
    driver = await place.driver("stream")
    await driver.declare(Queue("billing"))
    names = [f"m-{n:02}" for n in range(30)]
    await sent(driver, *(to("billing", name) for name in names))
    one = await driver.subscribe(Queue("billing"), prefetch=12)
    two = await driver.subscribe(Queue("billing"), prefetch=12)
    first, second = await received(one, 12), await received(two, 12)
    await two.release(second[6:])
    await one.close()
    await two.release(second[:6])
    assert ids(await driver.peek("billing", 100)) == names
    again = await emptied(await driver.subscribe(Queue("billing"), prefetch=50))
    assert ids(again) == names
    assert [each.redeliveries for each in again] == [1] * 12 + [0] * 18
    assert ids(first) == names[:12]


async def test_a_purge_reaches_all_that_is_ready_and_nothing_else(place: Place) -> None:
    driver = await place.driver("stream")
    await driver.declare(Queue("billing"))
    await sent(driver, *(to("billing", f"m-{n}") for n in range(50)))
    consumer = await driver.subscribe(Queue("billing"), prefetch=10)
    held = await received(consumer, 10)
    await consumer.release(held[5:])
    assert await driver.purge("billing") == 45
    assert list(await consumer.ack(held[:5])) == []
    assert await emptied(consumer) == []
    (info,) = await driver.inspect(["billing"])
    assert (info.ready, info.in_flight) == (0, 0)


async def test_an_entry_that_somebody_deleted_is_skipped(place: Place) -> None:
    driver = await place.driver("stream")
    await driver.declare(Queue("billing"))
    await sent(driver, to("billing", "m-1"), to("billing", "m-2"))
    consumer = await driver.subscribe(Queue("billing"), prefetch=5)
    one, two = await received(consumer, 2)
    await consumer.release([one, two])
    await place.call("XDEL", place.key("stream:billing"), one.token)
    assert ids(await received(consumer)) == ["m-2"]


async def test_what_is_retained_is_not_read_at_each_look() -> None:
    with RedisServer() as server:
        here = Place(f"{server.url}?prefix=retained&retain=5000")
        driver = await here.driver("stream")
        await driver.declare(Queue("billing"))
        consumer = await driver.subscribe(Queue("billing"), prefetch=500)
        await sent(driver, *(to("billing", f"m-{n}") for n in range(3000)))
        for _ in range(6):
            await consumer.ack(await received(consumer, 500))
        server.call("CONFIG", "RESETSTAT")
        await sent(driver, to("billing", "last"))
        assert ids(await received(consumer)) == ["last"]
        assert await emptied(consumer) == []
        assert b"cmdstat_lrange" not in server.call("INFO", "commandstats")
        assert server.call("LLEN", here.key("done:billing")) == 3000
        await here.close()
