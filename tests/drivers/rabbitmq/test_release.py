"""Giving a message back to a real RabbitMQ is not held against it, whoever gets it next."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from queuecraft.drivers.base import ConnectionLost, Outgoing, Queue, Receipt
from queuecraft.drivers.rabbitmq import drivers
from queuecraft.drivers.rabbitmq.confirms import Parcel
from queuecraft.drivers.rabbitmq.driver import RabbitDriver
from queuecraft.drivers.target import Target
from tests.rabbitmq.place import opened, until


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_giving_back_what_was_redelivered_is_not_one_more_crash(
    rabbitmq_url: str, kind: str
) -> None:
    queue = Queue("billing", arguments={"x-queue-type": kind})
    seen: list[int] = []
    for crashes in (True, False, False, True, False, False):
        (driver,) = drivers(Target(rabbitmq_url))  # as in a process of its own
        await driver.open()
        if not seen:
            await driver.declare(queue)
            await driver.send([Outgoing(b"{}", "m-1", queue="billing")])
        consumer = await driver.subscribe(queue, prefetch=10)
        (delivery,) = await consumer.receive(1, 10)
        seen.append(delivery.redeliveries)
        if not crashes:
            await consumer.release([delivery])
        await consumer.close()
        await driver.close()
    assert seen == [0, 1, 1, 1, 2, 2]


async def test_a_release_waits_for_what_a_full_queue_does_not_take_once_more(
    rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue("billing", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    crashed, driver = (drivers(Target(rabbitmq_url))[0] for _ in range(2))
    await crashed.open()
    await crashed.declare(queue)
    await crashed.send([Outgoing(b"{}", "m-1", queue="billing")])
    consumer = await crashed.subscribe(queue, prefetch=1)
    assert await consumer.receive(1, 10)
    await crashed.close()

    sending, full = asyncio.Event(), asyncio.Event()
    send = RabbitDriver.send_parcels

    async def held_up(self: RabbitDriver, parcels: Sequence[Parcel]) -> Sequence[Receipt]:
        sending.set()
        await full.wait()
        return await send(self, parcels)

    await driver.open()
    consumer = await driver.subscribe(queue, prefetch=1)
    with monkeypatch.context() as patch:
        patch.setattr(RabbitDriver, "send_parcels", held_up)
        receiving = asyncio.ensure_future(consumer.receive(1, 10))
        await sending.wait()
        receiving.cancel()
        await asyncio.wait([receiving])
        releasing = asyncio.ensure_future(consumer.release([]))
        await asyncio.sleep(0)
    await driver.send([Outgoing(b"{}", "m-2", queue="billing")])
    full.set()
    await releasing
    async with asyncio.timeout(10):
        while (await driver.inspect(["billing"]))[0].ready != 2:  # noqa: ASYNC110  the broker's
            await asyncio.sleep(0.05)
    await driver.close()


def test_all_that_a_consumer_can_have_given_back_is_known_when_it_comes_again() -> None:
    (driver,) = drivers(Target("amqp://localhost"))
    assert isinstance(driver, RabbitDriver)
    ids = [f"m-{number}" for number in range(65_535)]
    driver.released(ids)
    assert all(map(driver.was_released, ids))


async def test_a_release_that_cannot_send_again_says_so(
    rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue("billing")
    crashed, driver, other = (drivers(Target(rabbitmq_url))[0] for _ in range(3))
    await crashed.open()
    await crashed.declare(queue)
    await crashed.send([Outgoing(b"{}", "m-1", queue="billing")])
    consumer = await crashed.subscribe(queue, prefetch=1)
    assert await consumer.receive(1, 10)
    await crashed.close()

    await driver.open()
    consumer = await driver.subscribe(queue, prefetch=1)
    taken = await consumer.receive(1, 10)

    async def cut(self: RabbitDriver, parcels: Sequence[Parcel]) -> Sequence[Receipt]:
        raise ConnectionLost("the other connection is cut", broker="rabbitmq")

    with monkeypatch.context() as patch:
        patch.setattr(RabbitDriver, "send_parcels", cut)
        with pytest.raises(ConnectionLost, match="is cut"):
            await consumer.release(taken)
    await driver.close()  # as it is when a connection was lost
    await other.open()
    again = await other.subscribe(queue, prefetch=1)
    assert [each.sent.id for each in await again.receive(1, 10)] == ["m-1"]
    await other.close()


async def test_a_queue_that_goes_with_its_last_consumer_stays_while_that_gives_back(
    rabbitmq_url: str,
) -> None:
    queue = Queue("brief", auto_delete=True)
    sent = [f"m-{at}" for at in range(5)]
    async with opened(rabbitmq_url) as driver:
        await driver.declare(queue)
        consumer = await driver.subscribe(queue, prefetch=2)
        await driver.send([Outgoing(b"{}", name, queue="brief") for name in sent])
        taken = await consumer.receive(1, 10)
        await consumer.release(())
        await consumer.release(taken)
        assert await driver.count("brief") == 3
        handled: list[str] = []
        while len(handled) < 5 and (got := await consumer.receive(5, 10)):
            handled += [each.sent.id for each in got]
            assert not [each for each in got if each.redeliveries]
            assert await consumer.ack(got) == []
        assert handled == sent


async def test_a_look_by_a_stranger_leaves_a_queue_that_goes_with_its_last_consumer(
    rabbitmq_url: str,
) -> None:
    queue = Queue("brief", auto_delete=True)
    sent = [f"m-{at}" for at in range(5)]
    async with opened(rabbitmq_url) as driver, opened(rabbitmq_url) as stranger:
        await driver.declare(queue)
        await driver.send([Outgoing(b"{}", name, queue="brief") for name in sent])
        for peeking in (driver, stranger):
            for limit in (2, 10):
                seen = await peeking.peek("brief", limit)
                assert [each.sent.id for each in seen] == sent[:limit]
        consumer = await stranger.subscribe(Queue("brief"), prefetch=10)
        handled = [each.sent.id for each in await consumer.receive(10, 10)]
        while len(handled) < 5 and (got := await consumer.receive(5, 10)):
            handled += [each.sent.id for each in got]
        assert handled == sent


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_a_look_at_a_queue_in_order_takes_nothing_from_the_one_that_works(
    rabbitmq_url: str, kind: str
) -> None:
    queue = Queue("numbers", arguments={"x-queue-type": kind}, single_active=True)
    async with opened(rabbitmq_url) as driver, opened(rabbitmq_url) as stranger:
        await driver.declare(queue)
        await driver.send([Outgoing(b"{}", f"m-{at}", queue="numbers") for at in range(3)])
        for peeking in (driver, stranger):
            await until(lambda: driver.count("numbers"), lambda ready: ready == 3)
            seen = await peeking.peek("numbers", 10)
            assert sorted(each.sent.id for each in seen) == ["m-0", "m-1", "m-2"]
        consumer = await driver.subscribe(queue, prefetch=1)
        assert len(await consumer.receive(1, 10)) == 1
        assert await stranger.peek("numbers", 2) == []
