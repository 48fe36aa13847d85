"""Processes that die, and those that only seem to."""

from __future__ import annotations

import asyncio

import pytest

from queuecraft.drivers.base import Move, Queue, Rejected
from queuecraft.drivers.redis import scripts
from queuecraft.drivers.redis.session import BEAT, LEASE
from queuecraft.model.errors import QueueError
from tests.brokers.redis import Redis
from tests.redis.neighbour import neighbour
from tests.redis.place import Place, asleep, emptied, ids, received, sent, to

MODES = pytest.mark.parametrize("mode", ["list", "stream"])
HOLD = """
    consumer = await driver.subscribe(Queue("billing"), prefetch=2)
    held = await consumer.receive(2, 30)
    say(*[each.sent.id for each in held])
    heard()
"""


@MODES
async def test_what_a_killed_process_held_comes_back_in_its_place(place: Place, mode: str) -> None:
    driver = await place.driver(mode)
    await driver.declare(Queue("billing"))
    await sent(driver, *(to("billing", f"m-{n}") for n in range(4)))
    with neighbour(f"{place.url}&mode={mode}", HOLD) as other:
        assert await other.says() == "m-0 m-1"
        consumer = await driver.subscribe(Queue("billing"), prefetch=10)
        other.kill()
        got = await received(consumer, 4)
    assert [(each.sent.id, each.redeliveries) for each in got] == [
        ("m-2", 0),
        ("m-3", 0),
        ("m-0", 1),
        ("m-1", 1),
    ]
    assert list(await consumer.ack(got)) == []
    (info,) = await driver.inspect(["billing"])
    assert (info.ready, info.in_flight, info.consumers) == (0, 0, 1)


async def test_a_process_that_comes_first_finds_what_the_dead_have_left(place: Place) -> None:
    driver = await place.driver()
    await driver.declare(Queue("billing"))
    await sent(driver, *(to("billing", f"m-{n}") for n in range(3)))
    with neighbour(f"{place.url}&mode=list", HOLD) as other:
        assert await other.says() == "m-0 m-1"
        other.kill()
    got = await received(await driver.subscribe(Queue("billing"), prefetch=1))
    assert ids(got) == ["m-2"]
    other_consumer = await driver.subscribe(Queue("billing"), prefetch=5)
    assert ids(await received(other_consumer, 2)) == ["m-0", "m-1"]


@pytest.mark.faults
@MODES
async def test_a_loop_that_stands_still_keeps_what_it_holds(place: Place, mode: str) -> None:
    driver = await place.driver(mode)
    await driver.declare(Queue("billing"))
    await sent(driver, to("billing"))
    program = f"""
        consumer = await driver.subscribe(Queue("billing"), prefetch=2)
        held = await consumer.receive(2, 30)
        say("holds")
        time.sleep({LEASE * 2 + 2})
        say(len(await consumer.ack(held)))
    """
    with neighbour(f"{place.url}&mode={mode}", program) as other:
        assert await other.says() == "holds"
        consumer = await driver.subscribe(Queue("billing"), prefetch=2)
        assert await other.says() == "0", "stale"
    assert await emptied(consumer) == []


@MODES
async def test_who_was_taken_for_dead_settles_nothing(place: Place, mode: str) -> None:
    driver, other = await place.driver(mode), await place.driver(mode)
    for name in ("billing", "elsewhere"):
        await driver.declare(Queue(name))
    await sent(driver, to("billing", "m-1"), to("billing", "m-2"))
    slow = await driver.subscribe(Queue("billing"), prefetch=5)
    held = await received(slow, 2)
    assert driver._session is not None
    await other._eval("test", scripts.BURY, [driver._session.name])
    quick = await other.subscribe(Queue("billing"), prefetch=5)
    again = await received(quick, 2)
    assert [(each.sent.id, each.redeliveries) for each in again] == [("m-1", 1), ("m-2", 1)]

    await slow.release(held[:1])
    (receipt,) = await slow.move([Move(held[1], to("elsewhere", "m-2"))])
    assert isinstance(receipt, Rejected)
    assert list(await slow.ack(held)) == held
    with pytest.raises(QueueError, match="stood still"):
        await slow.receive(1, 0)
    await slow.close()
    assert list(await quick.ack(again)) == []
    assert [each.ready for each in await driver.inspect(["billing", "elsewhere"])] == [0, 0]

    await sent(driver, to("billing", "m-3"))
    assert ids(await received(await driver.subscribe(Queue("billing"), prefetch=5))) == ["m-3"]


@MODES
async def test_two_that_bury_at_once_do_no_harm(place: Place, mode: str) -> None:
    driver, dying = await place.driver(mode), await place.driver(mode)
    await driver.declare(Queue("billing"))
    await sent(driver, *(to("billing", f"m-{n}") for n in range(20)))
    held = await received(await dying.subscribe(Queue("billing"), prefetch=50), 20)
    assert dying._session is not None
    others = [await place.driver(mode) for _ in range(4)]
    await asyncio.gather(
        *(each._eval("test", scripts.BURY, [dying._session.name]) for each in others for _ in "ab"),
        *(each._eval("test", scripts.REAP, []) for each in others),
    )
    consumer = await driver.subscribe(Queue("billing"), prefetch=50)
    got = await emptied(consumer)
    assert ids(got) == ids(held)
    assert {each.redeliveries for each in got} == {1}


async def test_a_session_is_buried_at_second_sight_only(place: Place) -> None:
    driver, silent = await place.driver(), await place.driver()
    await driver.declare(Queue("billing"))
    await sent(driver, to("billing"))
    consumer = await silent.subscribe(Queue("billing"), prefetch=5)
    held = await received(consumer)
    assert silent._session is not None
    # As if the server had stood still for longer than any lease.
    await place.call("ZADD", place.key("sessions"), 1, silent._session.name)
    assert await driver._eval("test", scripts.REAP, []) == 0
    await driver._eval("test", scripts.RENEW, [silent._session.name, 60_000])
    assert await driver._eval("test", scripts.REAP, []) == 0
    assert list(await consumer.ack(held)) == []


async def test_a_reopened_driver_does_not_wait_for_its_own_lease(place: Place) -> None:
    driver = await place.driver()
    await driver.declare(Queue("billing"))
    await sent(driver, to("billing"))
    await received(await driver.subscribe(Queue("billing"), prefetch=5))
    assert driver._client is not None
    assert driver._client._transport is not None
    driver._client._transport.abort()
    await driver.open()
    (again,) = await emptied(await driver.subscribe(Queue("billing"), prefetch=5))
    assert again.redeliveries == 1


async def test_a_single_active_consumer_is_followed_by_the_next(place: Place) -> None:
    queue = Queue("billing", single_active=True)
    driver, other = await place.driver(), await place.driver()
    await driver.declare(queue)
    first = await driver.subscribe(queue, prefetch=1)
    second = await other.subscribe(queue, prefetch=5)
    await sent(driver, *(to("billing", f"m-{n}") for n in range(3)))
    held = await received(first)
    assert ids(held) == ["m-0"]
    waiting = asyncio.create_task(received(second, 3))
    await asleep(second)
    assert not waiting.done()
    await first.close()
    assert ids(await waiting) == ["m-0", "m-1", "m-2"]


@pytest.mark.faults
@MODES
async def test_a_server_that_stood_still_takes_nobody_for_dead(
    redis: Redis, place: Place, mode: str
) -> None:
    driver = await place.driver(mode)
    await driver.declare(Queue("billing"))
    await sent(driver, *(to("billing", f"m-{n}") for n in range(4)))
    program = HOLD + "    say(len(await consumer.ack(held)))\n"
    with neighbour(f"{place.url}&mode={mode}", program) as other:
        assert await other.says() == "m-0 m-1"
        consumer = await driver.subscribe(Queue("billing"), prefetch=10)
        held = await received(consumer, 2)
        redis.freeze()
        await asyncio.sleep(LEASE + 1)  # longer than any lease
        redis.thaw()
        await asyncio.sleep(4 * BEAT)  # enough for somebody to be suspected, and buried
        other.tell("go on")
        assert await other.says() == "0"
    assert list(await consumer.ack(held)) == []
