"""Servers that forget, end, freeze, and networks that cut."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from queuecraft.drivers.base import ACCEPTED, ConnectionLost, Delivery, Move, Queue, Unknown
from tests.brokers.redis import Redis
from tests.proxy import Proxy
from tests.redis.place import Place, bound, emptied, event, ids, received, sent, to

MODES = pytest.mark.parametrize("mode", ["list", "stream"])


@MODES
async def test_a_server_that_has_forgotten_its_scripts_is_told_them_again(
    place: Place, mode: str
) -> None:
    driver = await place.driver(mode)
    await driver.declare(bound("billing", "order.placed"))
    consumer = await driver.subscribe(Queue("billing"), prefetch=5)

    async def forgets() -> None:
        assert await place.call("SCRIPT", "FLUSH") == b"OK"

    await forgets()
    await sent(driver, event("order.placed", "m-1"), event("order.placed", "m-2"))
    await forgets()
    one, two = await received(consumer, 2)
    await forgets()
    await consumer.release([two])
    await forgets()
    assert list(await consumer.ack([one])) == []
    (two,) = await received(consumer)
    await forgets()
    assert list(await consumer.move([Move(two, to("billing", "m-3"))])) == [ACCEPTED]
    await forgets()
    (info,) = await driver.inspect(["billing"])
    assert info.ready == 1
    await forgets()
    await consumer.close()
    assert ids(await driver.peek("billing", 5)) == ["m-3"]


async def test_many_publishes_at_once_keep_their_order_though_the_script_is_unknown(
    place: Place,
) -> None:
    driver = await place.driver()
    await driver.declare(Queue("billing"))
    await place.call("SCRIPT", "FLUSH")
    names = [f"m-{n:03}" for n in range(100)]
    await asyncio.gather(*(sent(driver, to("billing", name)) for name in names))
    consumer = await driver.subscribe(Queue("billing"), prefetch=200)
    assert ids(await emptied(consumer)) == names


@MODES
async def test_a_killed_server_has_everything_when_it_is_back(
    redis: Redis, place: Place, mode: str
) -> None:
    driver = await place.driver(mode)
    await driver.declare(Queue("billing"))
    await sent(driver, *(to("billing", f"m-{n}") for n in range(5)))
    await sent(driver, to("billing", "later", due_at=1.0))
    consumer = await driver.subscribe(Queue("billing"), prefetch=2)
    held = await received(consumer, 2)
    waiting = asyncio.create_task(received(consumer))
    redis.kill()
    with pytest.raises(ConnectionLost):
        await waiting
    with pytest.raises(ConnectionLost):
        await consumer.ack(held)
    with pytest.raises(ConnectionLost):
        await driver.send([to("billing")])
    with pytest.raises(ConnectionLost):
        await driver.open()
    redis.start()
    await driver.open()
    got = await received(await driver.subscribe(Queue("billing"), prefetch=10), 6)
    assert [(each.sent.id, each.redeliveries) for each in got] == [
        ("m-0", 1),
        ("m-1", 1),
        ("m-2", 0),
        ("m-3", 0),
        ("m-4", 0),
        ("later", 0),
    ]


async def test_a_server_that_answers_nothing_is_given_up(redis: Redis, place: Place) -> None:
    driver = await place.driver(heartbeat=0.2, timeout=0.5)
    await driver.declare(Queue("billing"))
    consumer = await driver.subscribe(Queue("billing"), prefetch=1)
    redis.freeze()
    try:
        with pytest.raises(ConnectionLost, match="nothing heard"):
            await received(consumer)
        with pytest.raises(ConnectionLost, match=r"no answer within 0\.5 s"):
            await driver.open()
    finally:
        redis.thaw()
    await driver.open()
    await sent(driver, to("billing"))


async def test_a_network_that_swallows_everything_is_noticed(place: Place) -> None:
    with Proxy.to(place.url) as proxy:
        driver = await place.driver(url=proxy.url(place.url), heartbeat=0.2)
        await driver.declare(Queue("billing"))
        proxy.black_hole()
        (receipt,) = await driver.send([to("billing")])
        assert isinstance(receipt, Unknown)
        with pytest.raises(ConnectionLost):
            await driver.send([to("billing")])
        proxy.restore()
        await driver.open()
        await sent(driver, to("billing"))


@MODES
async def test_a_close_that_is_given_up_gives_everything_back(place: Place, mode: str) -> None:
    with Proxy.to(place.url) as proxy:
        driver = await place.driver(mode, url=proxy.url(place.url))
        await driver.declare(Queue("billing"))
        await sent(driver, *(to("billing", f"m-{n}") for n in range(5)))
        consumer = await driver.subscribe(Queue("billing"), prefetch=4)
        await received(consumer, 2)
        proxy.delay(3600, to="client")
        receiving = asyncio.create_task(consumer.receive(2, 100))
        await asyncio.sleep(0)
        receiving.cancel()  # the server gives it two more all the same
        await give_up(asyncio.create_task(consumer.close()), proxy)
        (info,) = await driver.inspect(["billing"])
        assert (info.ready, info.in_flight, info.consumers) == (5, 0, 0)
        other = await driver.subscribe(Queue("billing"), prefetch=10)
        assert ids(await received(other, 5)) == ["m-0", "m-1", "m-2", "m-3", "m-4"]


async def test_a_close_that_is_given_up_leaves_nobody_behind_at_most_once(place: Place) -> None:
    with Proxy.to(place.url) as proxy:
        url = proxy.url(place.url)
        driver = await place.driver(url=url, redis_delivery="at-most-once")
        await driver.declare(Queue("billing"))
        await sent(driver, to("billing", "m-0"), to("billing", "m-1"))
        consumer = await driver.subscribe(Queue("billing"), prefetch=2)
        await received(consumer, 2)
        proxy.delay(3600, to="client")
        await give_up(asyncio.create_task(consumer.close()), proxy)
        (info,) = await driver.inspect(["billing"])
        assert info.consumers == 0


@MODES
async def test_a_close_that_is_given_up_before_the_server_knows_how_is_carried_out(
    place: Place, mode: str
) -> None:
    with Proxy.to(place.url) as proxy:
        driver = await place.driver(mode, url=proxy.url(place.url))
        await driver.declare(Queue("billing"))
        await sent(driver, to("billing"))
        consumer = await driver.subscribe(Queue("billing"), prefetch=4)
        await received(consumer)
        await place.call("SCRIPT", "FLUSH")
        proxy.delay(3600, to="client")
        await give_up(asyncio.create_task(consumer.close()), proxy)
        other = await driver.subscribe(Queue("billing"), prefetch=10)
        assert ids(await received(other)) == ["m-1"]


@MODES
async def test_a_subscribe_that_is_given_up_leaves_no_consumer_behind(
    place: Place, mode: str
) -> None:
    with Proxy.to(place.url) as proxy:
        driver = await place.driver(mode, url=proxy.url(place.url))
        await driver.declare(Queue("billing"))
        first = await driver.subscribe(Queue("billing"), prefetch=1)  # the scripts are known by now
        proxy.delay(3600, to="client")
        await give_up(asyncio.create_task(driver.subscribe(Queue("billing"), prefetch=1)), proxy)
        await first.close()
        async with asyncio.timeout(10):
            while (await driver.inspect(["billing"]))[0].consumers:  # noqa: ASYNC110  the server's
                await asyncio.sleep(0.05)


async def give_up(closing: asyncio.Task[Any], proxy: Proxy) -> None:
    """Cancel a close that waits for the server, which answers after that."""
    for _ in range(5):
        await asyncio.sleep(0)
    assert not closing.done()
    closing.cancel()
    await asyncio.sleep(0)
    proxy.restore()
    with pytest.raises(asyncio.CancelledError):
        await closing


@MODES
@pytest.mark.parametrize("size", [0, 1, 30, 300, 3000])
async def test_a_connection_cut_in_the_middle_of_a_reply_loses_nothing(
    place: Place, mode: str, size: int
) -> None:
    names = [f"m-{n:02}" for n in range(20)]
    with Proxy.to(place.url) as proxy:
        driver = await place.driver(mode, url=proxy.url(place.url))
        await driver.declare(Queue("billing"))
        await sent(driver, *(to("billing", name, body=b"x" * 200) for name in names))
        consumer = await driver.subscribe(Queue("billing"), prefetch=50)
        happened = proxy.cut_after(size, to="client")
        with pytest.raises(ConnectionLost):
            await received(consumer, 1000)
        assert happened.wait(10)
        await driver.open()
        got = await received(await driver.subscribe(Queue("billing"), prefetch=50), 20)
    assert ids(got) == names


@pytest.mark.parametrize("size", [0, 1, 200, 1000])
async def test_publishes_cut_in_the_middle_are_stored_or_unknown(place: Place, size: int) -> None:
    with Proxy.to(place.url) as proxy:
        driver = await place.driver(url=proxy.url(place.url))
        await driver.declare(Queue("billing"))
        await sent(driver, to("billing", "first"))
        proxy.cut_after(size, to="server")
        answers = await asyncio.gather(
            *(driver.send([to("billing", f"m-{n}", body=b"x" * 100)]) for n in range(10)),
            return_exceptions=True,
        )
        await driver.open()
        there = set(ids(await driver.peek("billing", 100)))
    for number, answer in enumerate(answers):
        if isinstance(answer, ConnectionLost):
            assert f"m-{number}" not in there
        else:
            assert not isinstance(answer, BaseException)
            (receipt,) = answer
            assert receipt is ACCEPTED or isinstance(receipt, Unknown)
            if receipt is ACCEPTED:
                assert f"m-{number}" in there


async def test_a_caller_who_gives_up_does_not_shift_the_answers_of_others(place: Place) -> None:
    driver = await place.driver()
    await driver.declare(Queue("billing"))
    client = driver._open()
    given_up = [asyncio.create_task(client.call("ECHO", f"lost-{n}")) for n in range(50)]
    await asyncio.sleep(0)
    kept = [asyncio.create_task(client.call("ECHO", f"kept-{n}")) for n in range(50)]
    await asyncio.sleep(0)
    for task in given_up:
        task.cancel()
    assert await asyncio.gather(*kept) == [f"kept-{n}".encode() for n in range(50)]
    batch = asyncio.create_task(client.calls([("ECHO", "a"), ("ECHO", "b")]))
    await asyncio.sleep(0)
    batch.cancel()
    assert await client.call("ECHO", "c") == b"c"


@MODES
async def test_receiving_cancelled_again_and_again_loses_and_doubles_nothing(
    place: Place, mode: str
) -> None:
    driver = await place.driver(mode)
    await driver.declare(Queue("billing"))
    consumer = await driver.subscribe(Queue("billing"), prefetch=7)
    names = [f"m-{n:03}" for n in range(300)]
    got: list[Delivery] = []

    async def publish() -> None:
        for at in range(0, 300, 10):
            await sent(driver, *(to("billing", name) for name in names[at : at + 10]))
            await asyncio.sleep(0.001)

    async def receive() -> None:
        some = list(await consumer.receive(5, 10))
        got.extend(some)
        assert list(await consumer.ack(some)) == []

    publishing = asyncio.create_task(publish())
    turn = 0
    while len(got) < 300:
        turn += 1
        task = asyncio.ensure_future(consumer.receive(5, 10))
        for _ in range(turn % 9):
            await asyncio.sleep(0)
        task.cancel()
        try:
            some = list(await task)
        except asyncio.CancelledError:
            await receive()
        else:
            got.extend(some)
            assert list(await consumer.ack(some)) == []
    await publishing
    assert ids(got) == names
    (info,) = await driver.inspect(["billing"])
    assert (info.ready, info.in_flight) == (0, 0)
