"""Events find their queues among many bindings, whatever becomes of what is remembered of them."""

from __future__ import annotations

import pytest

from queuecraft.drivers.base import Binding, Exchange, Outgoing, Queue, Rejected
from queuecraft.drivers.redis.driver import RedisDriver
from tests.brokers.redis import RedisServer
from tests.redis.place import EVENTS, Place, bound, event, ids, sent

MANY = 200


async def waiting(driver: RedisDriver, queue: str) -> list[str]:
    return ids(await driver.peek(queue, 10))


async def test_of_many_bindings_an_event_looks_at_those_for_its_key(place: Place) -> None:
    driver = await place.driver()
    await driver.declare(bound("many", *(f"order.{number}" for number in range(MANY))))
    await driver.declare(bound("wild", "*.7"))
    await sent(driver, event("order.7", "m-1"), event("order.8", "m-2"), event("order.7", "m-3"))
    assert await waiting(driver, "many") == ["m-1", "m-2", "m-3"]
    assert await waiting(driver, "wild") == ["m-1", "m-3"]
    assert await place.call("HLEN", place.key("index:events")) == MANY + 1


async def test_few_bindings_are_not_indexed(place: Place) -> None:
    driver = await place.driver()
    await driver.declare(bound("few", *(f"order.{number}" for number in range(10))))
    await sent(driver, event("order.7"))
    assert await place.call("EXISTS", place.key("index:events")) == 0


@pytest.mark.parametrize("lost", ["index:events", "routes"])
async def test_an_index_that_somebody_has_deleted_is_made_again(place: Place, lost: str) -> None:
    driver = await place.driver()
    await driver.declare(bound("many", *(f"order.{number}" for number in range(MANY))))
    await sent(driver, event("order.1", "m-1"))
    await place.call("DEL", place.key(lost))
    await sent(driver, event("order.2", "m-2"))
    assert await waiting(driver, "many") == ["m-1", "m-2"]


async def test_an_index_of_before_a_change_is_not_believed(place: Place) -> None:
    """Also if the change was made by an older version, which knows of routes only."""
    driver = await place.driver()
    await driver.declare(bound("many", *(f"order.{number}" for number in range(MANY))))
    await driver.declare(bound("other", "order.7"))
    await sent(driver, event("order.1", "m-1"), event("order.7", "m-2"))
    old = await place.call("DUMP", place.key("index:events"))
    await driver.unbind("many", [Binding(EVENTS, "order.7")])
    await driver.declare(bound("late", "order.7"))
    await place.call("RESTORE", place.key("index:events"), 0, old, "REPLACE")
    await sent(driver, event("order.7", "m-3"))
    assert await waiting(driver, "late") == ["m-3"]
    assert await waiting(driver, "other") == ["m-2", "m-3"]
    assert await waiting(driver, "many") == ["m-1", "m-2"]


async def test_stars_of_many_bindings_of_a_direct_exchange_are_letters(place: Place) -> None:
    driver = await place.driver()
    direct = Exchange("direct", "direct")
    keys = ("*", "order.*", *(f"order.{number}" for number in range(MANY)))
    await driver.declare(Queue("many", bindings=tuple(Binding(direct, each) for each in keys)))
    messages = [Outgoing(b"", key, "direct", key) for key in ("order.7", "order.*", "*", "order")]
    receipts = await driver.send(messages)
    assert [isinstance(each, Rejected) for each in receipts] == [False, False, False, True]
    assert await waiting(driver, "many") == ["order.7", "order.*", "*"]


async def test_a_server_out_of_memory_does_without_an_index_and_rejects() -> None:
    with RedisServer({"maxmemory-policy": "noeviction"}) as server:
        place = Place(f"{server.url}?prefix=oom")
        driver = await place.driver()
        await driver.declare(bound("many", *(f"order.{number}" for number in range(MANY))))
        server.call("CONFIG", "SET", "maxmemory", "1")
        (receipt,) = await driver.send([event("order.7")])
        assert isinstance(receipt, Rejected)
        assert "out of memory" in receipt.error.message
        server.call("CONFIG", "SET", "maxmemory", "0")
        await sent(driver, event("order.7", "m-2"))
        assert await waiting(driver, "many") == ["m-2"]
        await place.close()
