"""An entry of a stream that the group has passed over is given to somebody all the same."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from queuecraft.drivers.base import Queue
from tests.redis.place import Place, emptied, ids, received, sent, to

BILLING = Queue("billing")


@pytest.fixture
async def place(redis_url: str) -> AsyncIterator[Place]:
    place = Place(redis_url)
    yield place
    await place.close()


async def pass_over(place: Place, *names: str) -> None:
    """What a crash may leave: entries that nobody was given, and the group beyond them."""
    add = "redis.call('XADD', KEYS[1], '*', 'm', each)"
    script = f"for _, each in ipairs(ARGV) do {add} end "
    script += "return redis.call('XGROUP', 'SETID', KEYS[1], 'qc', '$')"
    await place.call("EVAL", script, 1, place.key("stream:billing"), *names)


async def test_who_joins_is_given_what_was_passed_over_before_what_is_new(place: Place) -> None:
    driver = await place.driver("stream")
    await driver.declare(BILLING)
    holder = await driver.subscribe(BILLING, prefetch=5)
    await sent(driver, to("billing", "held"))
    await received(holder)
    await pass_over(place, *(f"{number}" for number in range(50)))
    await sent(driver, to("billing", "new"))

    consumer = await driver.subscribe(BILLING, prefetch=100)
    got = await emptied(consumer)

    assert [each.sent.body for each in got[:-1]] == [b"%d" % number for number in range(50)]
    assert ids(got[-1:]) == ["new"]
    assert {each.redeliveries for each in got} == {0}
    await consumer.ack(got)
    (info,) = await driver.inspect(["billing"])
    assert (info.ready, info.in_flight) == (0, 1)


async def test_who_finds_nothing_else_is_given_what_was_passed_over(place: Place) -> None:
    driver = await place.driver("stream")
    await driver.declare(BILLING)
    consumer = await driver.subscribe(BILLING, prefetch=2)
    await sent(driver, to("billing", "held"))
    await received(consumer)
    await pass_over(place, "one", "two")

    (one,) = await received(consumer)
    await consumer.ack([one])
    (two,) = await received(consumer)

    assert [one.sent.body, two.sent.body] == [b"one", b"two"]


async def test_what_is_retained_was_not_passed_over(place: Place) -> None:
    driver = await place.driver("stream", url=f"{place.url}&retain=10")
    await driver.declare(BILLING)
    consumer = await driver.subscribe(BILLING, prefetch=5)
    await sent(driver, *(to("billing", f"m-{number}") for number in range(3)))
    await consumer.ack(await received(consumer, 3))
    await pass_over(place, "one")
    late = await driver.subscribe(BILLING, prefetch=5)

    (one,) = await emptied(late)
    assert one.sent.body == b"one"
    await late.ack([one])
    assert await emptied(late) == await emptied(consumer) == []
    assert await place.call("XLEN", place.key("stream:billing")) == 4


async def test_what_a_consumer_holds_whom_nobody_knows_is_given_back_to_who_joins(
    place: Place,
) -> None:
    driver = await place.driver("stream")
    await driver.declare(BILLING)
    await sent(driver, to("billing", "one"))
    group = ("GROUP", "qc", "somebody", "STREAMS", place.key("stream:billing"), ">")
    await place.call("XREADGROUP", *group)

    consumer = await driver.subscribe(BILLING, prefetch=5)
    (one,) = await received(consumer)

    assert (one.sent.id, one.redeliveries) == ("one", 1)


async def test_what_was_given_back_and_is_not_among_it_is_found_by_who_joins(place: Place) -> None:
    driver = await place.driver("stream")
    await driver.declare(BILLING)
    first = await driver.subscribe(BILLING, prefetch=200)
    names = [f"m-{number}" for number in range(150)]
    await sent(driver, *(to("billing", each) for each in names))
    await received(first, 150)
    await first.close()
    await place.call("DEL", place.key("back:billing"))

    second = await driver.subscribe(BILLING, prefetch=200)

    assert ids(await emptied(second)) == names
