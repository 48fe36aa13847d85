"""What a receive that was cancelled has left, and a release gives back."""

from __future__ import annotations

import asyncio

import pytest

from queuecraft.drivers.base import Delivery, Queue
from queuecraft.drivers.redis.subscription import RedisSubscription
from queuecraft.model.settings import RedisDelivery
from tests.redis.place import Place, bound, emptied, event, eventually, ids, received, sent, to

KINDS = pytest.mark.parametrize(
    ("mode", "delivery"),
    [("list", "at-least-once"), ("list", "at-most-once"), ("stream", "at-least-once")],
)
ANSWERED = pytest.mark.parametrize("answered", [False, True])


async def cancelled_while_it_takes(
    consumer: RedisSubscription, limit: int, *, answered: bool
) -> None:
    """A receive that has asked the server, and is cancelled before it gives anything to anybody;
    `answered`: and the server has answered since."""
    receiving = asyncio.create_task(receive(consumer, limit))
    await asyncio.sleep(0)
    assert consumer._taking is not None
    receiving.cancel()

    async def is_answered() -> bool:
        return consumer._taking is None

    if answered:
        await eventually(is_answered)
    else:
        assert consumer._taking is not None


async def receive(consumer: RedisSubscription, limit: int) -> list[Delivery]:
    """One call of `receive`, to make a task of."""
    return list(await consumer.receive(limit, 100))


@KINDS
@ANSWERED
async def test_a_release_of_nothing_gives_back_what_nobody_was_given(
    place: Place, mode: str, delivery: RedisDelivery, answered: bool
) -> None:
    driver = await place.driver(mode, redis_delivery=delivery)
    await driver.declare(Queue("billing"))
    consumer = await driver.subscribe(Queue("billing"), prefetch=2)
    other = await driver.subscribe(Queue("billing"), prefetch=5)
    assert await emptied(consumer) == []  # and the server knows the script from now on
    await sent(driver, *(to("billing", f"m-{n}") for n in range(3)))
    await cancelled_while_it_takes(consumer, 2, answered=answered)
    await consumer.release(())
    assert not consumer.held
    got = await emptied(other)
    assert [(each.sent.id, each.redeliveries) for each in got] == [
        ("m-0", 0),
        ("m-1", 0),
        ("m-2", 0),
    ]
    await other.release(got)
    assert ids(await received(consumer, 2)) == ["m-0", "m-1"]


@KINDS
@ANSWERED
async def test_what_is_released_goes_back_in_order_with_what_nobody_was_given(
    place: Place, mode: str, delivery: RedisDelivery, answered: bool
) -> None:
    driver = await place.driver(mode, redis_delivery=delivery)
    await driver.declare(Queue("billing"))
    consumer = await driver.subscribe(Queue("billing"), prefetch=3)
    assert await emptied(consumer) == []  # and the server knows the script from now on
    await sent(driver, *(to("billing", f"m-{n}") for n in range(4)))
    held = [*await received(consumer), *await received(consumer)]
    await cancelled_while_it_takes(consumer, 1, answered=answered)
    await consumer.release(held)
    assert ids(await driver.peek("billing", 5)) == ["m-0", "m-1", "m-2", "m-3"]


@KINDS
async def test_a_consumer_that_is_closed_leaves_all_in_order(
    place: Place, mode: str, delivery: RedisDelivery
) -> None:
    driver = await place.driver(mode, redis_delivery=delivery)
    await driver.declare(Queue("billing"))
    consumer = await driver.subscribe(Queue("billing"), prefetch=3)
    assert await emptied(consumer) == []  # and the server knows the script from now on
    await sent(driver, *(to("billing", f"m-{n}") for n in range(4)))
    await received(consumer, 1)
    await cancelled_while_it_takes(consumer, 2, answered=True)
    await consumer.close()
    assert ids(await driver.peek("billing", 5)) == ["m-0", "m-1", "m-2", "m-3"]


@pytest.mark.parametrize("mode", ["list", "stream", "pubsub"])
async def test_a_release_of_nothing_does_not_ask_the_server(place: Place, mode: str) -> None:
    driver = await place.driver(mode)
    await driver.declare(Queue("billing"))
    consumer = await driver.subscribe(Queue("billing"), prefetch=5)
    await sent(driver, to("billing"))
    held = await received(consumer)
    releasing = consumer.release(())
    with pytest.raises(StopIteration):
        releasing.send(None)  # to its end, without giving up the loop
    assert list(await consumer.ack(held)) == []


@ANSWERED
async def test_events_that_were_heard_stay_in_order_when_what_is_kept_goes_back(
    place: Place, answered: bool
) -> None:
    driver = await place.driver("pubsub")
    await driver.declare(bound("billing", "order.*"))
    consumer = await driver.subscribe(Queue("billing"), prefetch=9)
    await sent(driver, *(event("order.placed", f"e-{n}") for n in range(3)))
    given = await received(consumer, 3)
    assert await emptied(consumer) == []  # and the server knows the script from now on
    await sent(driver, to("billing", "kept"))
    await cancelled_while_it_takes(consumer, 2, answered=answered)
    await consumer.release(given[:1])
    (info,) = await driver.inspect(["billing"])
    assert (info.ready, info.in_flight) == (1, 0)
    assert await consumer.ack(given[1:]) == []
    await sent(driver, event("order.placed", "e-3"))
    got = ids(await received(consumer, 3))
    assert sorted(got) == ["e-0", "e-3", "kept"]
    assert [each for each in got if each != "kept"] == ["e-0", "e-3"]
