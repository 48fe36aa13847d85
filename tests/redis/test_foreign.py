"""What other programs put into our queues: a payload with defaults, whatever it is."""

from __future__ import annotations

import asyncio

import pytest

from queuecraft import DeadMessage, Filter, QueueCraft
from queuecraft.drivers.base import Queue
from queuecraft.drivers.redis.envelope import AGAIN, OURS
from tests.redis.place import Place, asleep, bound, event, ids, received, sent, to


async def test_a_plain_push_is_a_message(place: Place) -> None:
    driver = await place.driver()
    await driver.declare(Queue("billing"))
    await place.call("RPUSH", place.key("queue:billing"), '{"total": 9.5}', b"\x00\xff")
    one, two = await received(await driver.subscribe(Queue("billing"), prefetch=5), 2)
    assert (one.sent.body, two.sent.body) == (b'{"total": 9.5}', b"\x00\xff")
    assert one.sent.id != two.sent.id
    assert (one.sent.routing_key, dict(one.sent.headers), one.redeliveries) == ("", {}, 0)


async def test_a_plain_push_wakes_a_consumer_that_waits(place: Place) -> None:
    driver = await place.driver()
    await driver.declare(Queue("billing"))
    consumer = await driver.subscribe(Queue("billing"), prefetch=5)
    for text in ("one", "two", "three"):
        waiting = asyncio.create_task(received(consumer))
        await asleep(consumer)
        await place.call("RPUSH", place.key("queue:billing"), text)
        (delivery,) = await waiting
        assert delivery.sent.body == text.encode()


async def test_a_plain_push_of_a_priority_comes_first(place: Place) -> None:
    driver = await place.driver()
    await driver.declare(Queue("billing"))
    await place.call("RPUSH", place.key("queue:billing"), "usual")
    await place.call("RPUSH", place.key("queue.7:billing"), "urgent")
    got = await received(await driver.subscribe(Queue("billing"), prefetch=5), 2)
    assert [each.sent.body for each in got] == [b"urgent", b"usual"]


async def test_a_plain_push_waits_for_the_queue_to_be_declared(place: Place) -> None:
    await place.call("RPUSH", place.key("queue:billing"), "early")
    driver = await place.driver()
    await driver.declare(Queue("billing"))
    (delivery,) = await received(await driver.subscribe(Queue("billing"), prefetch=5))
    assert delivery.sent.body == b"early"


async def test_a_foreign_message_keeps_its_id_when_it_comes_again(place: Place) -> None:
    driver = await place.driver()
    await driver.declare(Queue("billing"))
    await place.call("RPUSH", place.key("queue:billing"), "hello")
    seen: list[tuple[str, int]] = []
    for _ in range(3):
        consumer = await driver.subscribe(Queue("billing"), prefetch=5)
        (delivery,) = await received(consumer)
        assert delivery.sent.body == b"hello"
        seen.append((delivery.sent.id, delivery.redeliveries))
        await consumer.close()
    assert seen == [(seen[0][0], 0), (seen[0][0], 1), (seen[0][0], 2)]


@pytest.mark.parametrize("held_before", [False, True])
async def test_plain_pushes_among_dead_letters_are_deleted_when_they_were_counted(
    held_before: bool, place: Place
) -> None:
    driver = await place.driver()
    await driver.declare(Queue("billing.dlq"))
    await place.call("RPUSH", place.key("queue:billing.dlq"), "alike", "alike", "other")
    if held_before:
        consumer = await driver.subscribe(Queue("billing.dlq"), prefetch=1)
        await received(consumer)
        await consumer.close()
    chosen: list[DeadMessage] = []
    async with QueueCraft(f"{place.url}&mode=list") as qc:
        engine = qc.dead_letters
        plan = await engine.delete("billing", limit=2, dry_run=True, on_chosen=chosen.append)
        counted = Filter(deaths=frozenset(each.death for each in chosen))
        done = await engine.delete("billing", where=counted, limit=plan.moved)
        left = await engine.list("billing")
    assert (plan.moved, done.moved, [each.body for each in left]) == (2, 2, [b"other"])


@pytest.mark.parametrize(
    "value",
    [
        b"",
        OURS,
        OURS + b"\xc1",
        OURS + b"\x90",
        OURS + b"\x92\xa1a\xa1b",
        AGAIN,
        AGAIN + b"zzzzzzzz00",
        AGAIN + b"0000000105ab",
        AGAIN + b"0000000102\xff\xfe",
        AGAIN + b"0000000100" + OURS + b"\xc1",
    ],
)
async def test_what_only_looks_like_ours_is_a_payload_too(place: Place, value: bytes) -> None:
    driver = await place.driver()
    await driver.declare(Queue("billing"))
    await place.call("RPUSH", place.key("queue:billing"), value)
    await sent(driver, to("billing", "sound"))
    for _ in range(3):
        consumer = await driver.subscribe(Queue("billing"), prefetch=5)
        _, sound = await received(consumer, 2)
        assert sound.sent.id == "sound"
        await consumer.close()


async def test_an_entry_added_by_hand_is_a_message(place: Place) -> None:
    driver = await place.driver("stream")
    await driver.declare(Queue("billing"))
    key = place.key("stream:billing")
    first = await place.call("XADD", key, "*", "data", '{"total": 9.5}')
    await place.call("XADD", key, "*", "id", "o-1", "total", "9.5")
    one, two = await received(await driver.subscribe(Queue("billing"), prefetch=5), 2)
    assert one.sent.body == b'{"total": 9.5}'
    assert one.sent.id == f"stream-{first.decode()}"
    assert two.sent.body in (b'{"id":"o-1","total":"9.5"}', b'{"total":"9.5","id":"o-1"}')


async def test_an_entry_added_by_hand_wakes_a_consumer_that_waits(place: Place) -> None:
    driver = await place.driver("stream")
    await driver.declare(Queue("billing"))
    consumer = await driver.subscribe(Queue("billing"), prefetch=5)
    waiting = asyncio.create_task(received(consumer))
    await asleep(consumer)
    await place.call("XADD", place.key("stream:billing"), "*", "data", "hello")
    assert [each.sent.body for each in await waiting] == [b"hello"]


async def test_an_event_published_by_hand_is_a_message(place: Place) -> None:
    driver = await place.driver("pubsub")
    await driver.declare(bound("billing", "order.placed"))
    consumer = await driver.subscribe(Queue("billing"), prefetch=5)
    assert await place.call("PUBLISH", place.key("live:billing"), "hello") == 1
    await sent(driver, event("order.placed"))
    one, two = await received(consumer, 2)
    assert one.sent.body == b"hello"
    assert ids([two]) == ["m-1"]


async def test_a_stream_that_was_deleted_is_made_again(place: Place) -> None:
    driver = await place.driver("stream")
    await driver.declare(Queue("billing"))
    consumer = await driver.subscribe(Queue("billing"), prefetch=5)
    await sent(driver, to("billing", "lost"))
    await place.call("DEL", place.key("stream:billing"))
    await sent(driver, to("billing", "kept"))
    assert ids(await received(consumer)) == ["kept"]
