"""Several batches under way at once, where a broker stores them in the order they were sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from queuecraft import PublishError
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.testing import FaultyDriver
from tests.runtime.publishing import Order, Shop, eventually, order_placed, outcome, turns

MANY = [f"m-{n:03}" for n in range(100)]


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    driver = FaultyDriver(MemoryDriver(), inline=False, flights=2)
    async with Shop(drivers=[driver]) as shop:
        await shop.publish("first")  # the exchange is there from now on
        driver.batches.clear()
        driver.calls.clear()
        yield shop


async def test_what_waits_is_divided_among_two(shop: Shop) -> None:
    hangs = [shop.driver.hang(stored=True) for _ in range(2)]
    publishes = [shop.publish(id) for id in MANY]
    await eventually(lambda: len(shop.driver.batches) == 2)
    await turns()
    assert shop.driver.batches == [50, 50]
    for hang in hangs:
        hang.release()
    assert await asyncio.gather(*publishes) == MANY
    assert await shop.stored() == ["first", *MANY]


async def test_one_goes_at_once_though_another_is_under_way(shop: Shop) -> None:
    hang = shop.driver.hang(stored=True)
    slow = shop.publish("slow")
    await eventually(lambda: shop.driver.batches)
    assert await shop.publish("quick") == "quick"
    assert not slow.done()
    hang.release()
    assert await slow == "slow"


async def test_no_more_are_under_way_than_the_broker_takes(shop: Shop) -> None:
    hangs = [shop.driver.hang(stored=True) for _ in range(2)]
    one = shop.publish("one")
    await eventually(lambda: len(shop.driver.batches) == 1)
    two = shop.publish("two")
    await eventually(lambda: len(shop.driver.batches) == 2)
    rest = [shop.publish("three"), shop.publish("four")]
    await turns()
    assert shop.driver.batches == [1, 1]
    hangs[1].release()
    assert await asyncio.gather(two, *rest) == ["two", "three", "four"]
    assert shop.driver.batches == [1, 1, 2]
    assert not one.done()
    hangs[0].release()
    assert await one == "one"


async def test_what_was_under_way_goes_again_in_order_and_before_what_is_newer(shop: Shop) -> None:
    for _ in range(2):
        shop.driver.hang(stored=False)
    publishes = [shop.publish(id) for id in MANY]
    await eventually(lambda: len(shop.driver.batches) == 2)
    publishes.append(shop.publish("newer"))
    await turns()
    await shop.outage()
    await shop.recover()
    assert await asyncio.gather(*publishes) == [*MANY, "newer"]
    assert await shop.stored() == ["first", *MANY, "newer"]


async def test_nothing_newer_takes_off_while_an_older_one_is_to_go_again(shop: Shop) -> None:
    shop.driver.lose_answers(stored=False)
    hangs = [shop.driver.hang(stored=True) for _ in range(2)]
    one = shop.publish("one")
    await eventually(lambda: len(shop.driver.batches) == 1)
    two = shop.publish("two")
    await eventually(lambda: len(shop.driver.batches) == 2)
    newer = shop.publish("newer")
    hangs[0].release()  # and its answer is missing
    await turns()
    hangs[1].release()
    await shop.clock.advance(31)
    assert [await one, await two, await newer] == ["one", "two", "newer"]
    stored = await shop.stored()
    assert stored.index("one") < stored.index("newer")


async def test_both_are_told_when_time_is_up(shop: Shop) -> None:
    hangs = [shop.driver.hang(stored=True) for _ in range(2)]
    one = shop.publish("one")
    await eventually(lambda: len(shop.driver.batches) == 1)
    many = asyncio.ensure_future(shop.qc.publish_many(order_placed, [Order("o")] * 3))
    await eventually(lambda: len(shop.driver.batches) == 2)
    await shop.clock.advance(31)
    errors = [await outcome(one), await outcome(many)]
    assert all(isinstance(each, PublishError) for each in errors)
    assert [each.outcome for each in errors if isinstance(each, PublishError)] == ["unknown"] * 2
    for hang in hangs:
        hang.release()
    assert await shop.publish("later") == "later"
