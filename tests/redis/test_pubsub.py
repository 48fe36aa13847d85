"""Pub/sub: events for those who listen, everything else in lists."""

from __future__ import annotations

import time

import pytest

from queuecraft.drivers.base import ACCEPTED, Move, Queue, Rejected
from queuecraft.drivers.redis import drivers
from queuecraft.drivers.redis.address import addresses
from queuecraft.drivers.redis.driver import PubsubDriver
from queuecraft.drivers.target import Target
from queuecraft.model.errors import QueueError, Unroutable
from queuecraft.model.queue import DeadLetterTarget
from tests.proxy import Proxy
from tests.redis.place import Place, bound, emptied, event, ids, received, sent, to


async def test_an_event_reaches_every_queue_that_listens(place: Place) -> None:
    driver, other = await place.driver("pubsub"), await place.driver("pubsub")
    for name, pattern in (("billing", "order.*"), ("audit", "#"), ("users", "user.*")):
        await driver.declare(bound(name, pattern))
    billing = await driver.subscribe(Queue("billing"), prefetch=5)
    audit = await other.subscribe(Queue("audit"), prefetch=5)
    users = await other.subscribe(Queue("users"), prefetch=5)
    await sent(driver, event("order.placed", "m-1"), event("order.paid", "m-2"))
    for consumer in (billing, audit):
        got = await received(consumer, 2)
        assert ids(got) == ["m-1", "m-2"]
        assert list(await consumer.ack(got)) == []
        assert list(await consumer.ack(got)) == got
    assert await emptied(users) == []


async def test_an_event_for_nobody_is_unroutable(place: Place) -> None:
    driver = await place.driver("pubsub")
    await driver.declare(bound("billing", "order.*"))
    (receipt,) = await driver.send([event("order.placed")])
    assert isinstance(receipt, Rejected)
    assert isinstance(receipt.error, Unroutable)
    consumer = await driver.subscribe(Queue("billing"), prefetch=5)
    await sent(driver, event("order.placed"))
    await consumer.close()
    (receipt,) = await driver.send([event("order.placed")])
    assert isinstance(receipt, Rejected)


async def test_what_is_sent_to_a_queue_waits_in_its_list(place: Place) -> None:
    driver = await place.driver("pubsub")
    await driver.declare(bound("billing", "order.*"))
    await sent(driver, to("billing", "kept"))
    assert await place.call("LLEN", place.key("queue:billing")) == 1
    consumer = await driver.subscribe(Queue("billing"), prefetch=5)
    await sent(driver, event("order.placed", "heard"))
    assert sorted(ids(await received(consumer, 2))) == ["heard", "kept"]


async def test_the_lists_have_their_turn_however_many_events_there_are(place: Place) -> None:
    driver = await place.driver("pubsub")
    await driver.declare(bound("billing", "order.*"))
    consumer = await driver.subscribe(Queue("billing"), prefetch=1)
    await sent(driver, *(event("order.placed", f"e-{n}") for n in range(200)), to("billing", "x"))
    seen: list[str] = []
    while "x" not in seen:
        got = await received(consumer)
        seen += ids(got)
        await consumer.ack(got)
    assert len(seen) < 100


async def test_a_retry_and_a_dead_letter_are_kept(place: Place) -> None:
    driver = await place.driver("pubsub")
    target = DeadLetterTarget("events.dlx", "billing.dlq", "billing.dlq")
    await driver.declare(bound("billing", "order.*", dead_letters=target))
    consumer = await driver.subscribe(Queue("billing"), prefetch=5)
    await sent(driver, event("order.placed", "retried"), event("order.placed", "dead"))
    retried, dead = await received(consumer, 2)
    due = time.time() + 0.05
    letter = event("billing.dlq", "dead")
    moves = [
        Move(retried, to("billing", "retried", due_at=due)),
        Move(dead, type(letter)(b"{}", "dead", "events.dlx", "billing.dlq")),
        Move(dead, letter),
    ]
    first, second, third = await consumer.move(moves)
    assert first is second is ACCEPTED
    assert isinstance(third, Rejected)
    assert ids(await received(consumer)) == ["retried"]
    assert time.time() >= due
    assert ids(await driver.peek("billing.dlq", 5)) == ["dead"]
    letters = await driver.subscribe(Queue("billing.dlq"), prefetch=5)
    assert ids(await received(letters)) == ["dead"]


async def test_what_was_not_handled_is_kept_by_a_process_that_ends_in_order(place: Place) -> None:
    driver = await place.driver("pubsub")
    await driver.declare(bound("billing", "order.*"))
    consumer = await driver.subscribe(Queue("billing"), prefetch=3)
    await sent(driver, *(event("order.placed", f"m-{n}") for n in range(5)))
    done, begun, given_back = await received(consumer, 3)
    await consumer.ack([done])
    await consumer.release([given_back])
    assert ids(await received(consumer)) == ["m-2"]
    await consumer.close()
    again = await emptied(await driver.subscribe(Queue("billing"), prefetch=9))
    assert [(each.sent.id, each.redeliveries) for each in again] == [
        ("m-1", 1),
        ("m-2", 1),
        ("m-3", 0),
        ("m-4", 0),
    ]
    assert begun.sent.id == "m-1"


async def test_a_second_process_is_refused_as_long_as_the_first_listens(place: Place) -> None:
    driver, other = await place.driver("pubsub"), await place.driver("pubsub")
    await driver.declare(bound("billing", "order.*"))
    first = await driver.subscribe(Queue("billing"), prefetch=5)
    with pytest.raises(QueueError, match="another process consumes this queue"):
        await other.subscribe(Queue("billing"), prefetch=5)
    assert [each.consumers for each in await driver.inspect(["billing"])] == [1]
    await first.close()
    await other.subscribe(Queue("billing"), prefetch=5)


async def test_a_listener_that_a_network_has_swallowed_does_not_lock_itself_out(
    place: Place,
) -> None:
    with Proxy.to(place.url) as proxy:
        driver = await place.driver("pubsub", url=proxy.url(place.url), heartbeat=0.2)
        await driver.declare(bound("billing", "order.*"))
        consumer = await driver.subscribe(Queue("billing"), prefetch=5)
        proxy.black_hole()
        with pytest.raises(QueueError):
            await received(consumer)
        direct = Target(f"{place.url}&mode=pubsub")
        driver._target = direct
        (driver._address,) = addresses(direct.url)
        await driver.open()  # while the server still waits for what is behind the proxy
        again = await driver.subscribe(Queue("billing"), prefetch=5)
        await sent(driver, event("order.placed"))
        assert ids(await received(again)) == ["m-1"]


async def test_a_delayed_event_reaches_who_listens_when_it_is_due(place: Place) -> None:
    driver = await place.driver("pubsub")
    await driver.declare(bound("billing", "order.*"))
    due = time.time() + 0.05
    await sent(driver, event("order.placed", due_at=due))
    consumer = await driver.subscribe(Queue("billing"), prefetch=5)
    assert ids(await received(consumer)) == ["m-1"]
    assert time.time() >= due


def test_no_mode_is_pubsub_and_a_warning_that_names_the_setting() -> None:
    with pytest.warns(DeprecationWarning, match="redis_mode='list'"):
        (driver,) = drivers(Target("redis://localhost"))
    assert isinstance(driver, PubsubDriver)


async def test_more_events_than_can_wait_push_out_the_oldest(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("queuecraft.drivers.redis.live.BACKLOG", 3)
    driver = await place.driver("pubsub")
    await driver.declare(bound("billing", "order.*"))
    consumer = await driver.subscribe(Queue("billing"), prefetch=9)
    await sent(driver, *(event("order.placed", f"m-{n}") for n in range(5)))
    assert ids(await received(consumer, 3)) == ["m-2", "m-3", "m-4"]
    assert caplog.text.count("the oldest are dropped") == 1
