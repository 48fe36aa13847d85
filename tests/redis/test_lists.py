"""Lists: at most once, prefixes, batches that are large."""

from __future__ import annotations

import pytest

from queuecraft.drivers.base import ACCEPTED, ConnectionLost, Move, Queue, Rejected
from queuecraft.drivers.redis import drivers, sending
from queuecraft.drivers.target import Target
from queuecraft.model.errors import ConfigError, QueueError
from queuecraft.model.settings import Settings
from tests.redis.neighbour import neighbour
from tests.redis.place import Place, bound, emptied, event, ids, received, sent, to


async def test_at_most_once_forgets_what_is_delivered(place: Place) -> None:
    driver = await place.driver(redis_delivery="at-most-once")
    assert not driver.traits.counts_redeliveries
    await driver.declare(Queue("billing"))
    await driver.declare(Queue("elsewhere"))
    await sent(driver, *(to("billing", f"m-{n}", priority=n % 2) for n in range(6)))
    consumer = await driver.subscribe(Queue("billing"), prefetch=4)
    held = await received(consumer, 4)
    assert ids(held) == ["m-1", "m-3", "m-5", "m-0"]
    assert await place.call("EXISTS", place.key(f"held:{consumer.consumer}")) == 0
    assert list(await consumer.ack(held[:1])) == []
    assert list(await consumer.ack(held[:1])) == held[:1]
    move = Move(held[1], to("elsewhere", "moved"))
    accepted, again = await consumer.move([move, move])
    assert accepted is ACCEPTED
    assert isinstance(again, Rejected)
    await consumer.close()
    rest = await emptied(await driver.subscribe(Queue("billing"), prefetch=9))
    assert ids(rest) == ["m-5", "m-0", "m-2", "m-4"]


async def test_at_most_once_what_the_server_does_not_take_back_is_held_and_goes_back_later(
    place: Place,
) -> None:
    driver = await place.driver(redis_delivery="at-most-once")
    await driver.declare(Queue("billing"))
    await sent(driver, *(to("billing", f"m-{n}", priority=n % 2) for n in range(4)))
    consumer = await driver.subscribe(Queue("billing"), prefetch=5)
    held = await received(consumer, 4)
    await place.call("SET", place.key("queue:billing"), "mine")
    with pytest.raises(QueueError, match="WRONGTYPE"):
        await consumer.release(held)
    assert await place.call("EXISTS", place.key("queue.1:billing")) == 0, "all, or none"
    await place.call("DEL", place.key("queue:billing"))
    await consumer.release(held)
    assert ids(await emptied(consumer)) == ["m-1", "m-3", "m-0", "m-2"]


async def test_at_most_once_who_was_taken_for_dead_gives_back_nothing_that_is_handled(
    place: Place,
) -> None:
    driver = await place.driver(redis_delivery="at-most-once")
    await driver.declare(Queue("billing"))
    await sent(driver, to("billing", "m-1"), to("billing", "m-2"))
    consumer = await driver.subscribe(Queue("billing"), prefetch=5)
    handled = await received(consumer, 2)
    await place.call("HDEL", place.key("consumers:billing"), consumer.consumer)
    with pytest.raises(QueueError, match="stood still"):
        await received(consumer)
    await consumer.close()
    assert list(await consumer.ack(handled)) == handled
    assert await driver.count("billing") == 0


@pytest.mark.parametrize("how", ["release", "close"])
async def test_at_most_once_nothing_is_given_back_to_a_queue_that_was_deleted(
    place: Place, how: str
) -> None:
    driver = await place.driver(redis_delivery="at-most-once")
    await driver.declare(Queue("billing"))
    await sent(driver, to("billing", "m-1"), to("billing", "m-2", priority=3))
    consumer = await driver.subscribe(Queue("billing"), prefetch=5)
    held = await received(consumer, 2)
    await driver.delete("billing")
    if how == "release":
        await consumer.release(held)
    await consumer.close()
    await driver.declare(Queue("billing"))
    assert await driver.count("billing") == 0


async def test_at_most_once_a_killed_process_takes_its_messages_with_it(place: Place) -> None:
    driver = await place.driver()
    await driver.declare(Queue("billing"))
    await sent(driver, to("billing", "lost"), to("billing", "kept"))
    program = """
        from queuecraft.model.settings import Settings
        settings = Settings(redis_delivery="at-most-once")
        driver = drivers(Target(sys.argv[1], settings=settings))[0]
        await driver.open()
        consumer = await driver.subscribe(Queue("billing"), prefetch=1)
        say(len(await consumer.receive(1, 10)))
        heard()
    """
    with neighbour(f"{place.url}&mode=list", program) as other:
        assert await other.says() == "1"
        other.kill()
    assert ids(await driver.peek("billing", 5)) == ["kept"]
    (info,) = await driver.inspect(["billing"])
    assert info.in_flight == 0


def test_a_stream_is_never_at_most_once() -> None:
    settings = Settings(redis_delivery="at-most-once")
    with pytest.raises(ConfigError, match="is for lists"):
        drivers(Target("redis://localhost?mode=stream", settings=settings))


async def test_prefixes_and_databases_do_not_see_each_other(place: Place) -> None:
    here = await place.driver()
    other = Place(place.url.replace("prefix=", "prefix=other-"))
    database = Place(place.url.replace("/0?", "/1?"))
    there, beside = await other.driver(), await database.driver()
    for driver in (here, there, beside):
        await driver.declare(bound("billing", "order.placed"))
    await sent(here, event("order.placed"))
    for driver, count in ((here, 1), (there, 0), (beside, 0)):
        (info,) = await driver.inspect()
        assert info.ready == count
        assert [name for _, name in (await driver.topology()).bindings] == ["billing"]
        await driver.delete("billing")
    await other.close()
    await database.close()


async def test_all_keys_are_under_the_prefix(place: Place) -> None:
    driver = await place.driver()
    before = set(await place.call("KEYS", "*"))
    await driver.declare(bound("billing", "order.placed", exclusive=False))
    consumer = await driver.subscribe(Queue("billing", single_active=True), prefetch=5)
    await sent(driver, event("order.placed"), event("order.placed", due_at=4e9))
    await sent(driver, to("billing", due_at=4e9))
    await received(consumer)
    keys = set(await place.call("KEYS", "*")) - before
    assert len(keys) > 8
    assert [key for key in keys if not key.startswith(place.base.encode())] == []
    await driver.delete("billing")


@pytest.mark.parametrize("atomic", [False, True])
async def test_a_batch_may_be_large(
    place: Place, monkeypatch: pytest.MonkeyPatch, atomic: bool
) -> None:
    monkeypatch.setattr(sending, "LARGEST", 5000)
    driver = await place.driver()
    await driver.declare(Queue("billing"))
    names = [f"m-{n:04}" for n in range(2500)]
    sizes = {0: 6000, 7: 20_000, 2499: 9000}
    batch = [to("billing", name, body=b"x" * sizes.get(n, 1)) for n, name in enumerate(names)]
    assert list(await driver.send(batch, atomic=atomic)) == [ACCEPTED] * 2500
    consumer = await driver.subscribe(Queue("billing"), prefetch=3000)
    assert ids(await received(consumer, 2500)) == names
    assert list(await consumer.ack(list(consumer.held))) == []


async def test_a_queue_deleted_under_its_consumer_ends_that_one_alone(place: Place) -> None:
    driver = await place.driver()
    for name in ("billing", "audit"):
        await driver.declare(Queue(name))
    consumer = await driver.subscribe(Queue("billing"), prefetch=5)
    other = await driver.subscribe(Queue("audit"), prefetch=5)
    await sent(driver, to("billing"))
    held = await received(consumer)
    await driver.delete("billing")
    with pytest.raises(QueueError, match="deleted under its consumer") as caught:
        await received(consumer)
    assert not isinstance(caught.value, ConnectionLost)
    assert list(await consumer.ack(held)) == held
    await sent(driver, to("audit"))
    assert ids(await received(other)) == ["m-1"]


async def test_the_oldest_message_tells_its_age(place: Place) -> None:
    driver = await place.driver()
    await driver.declare(Queue("billing"))
    now = driver.clock.now()
    await sent(driver, to("billing", timestamp=now - 50), to("billing", timestamp=now - 100))
    await sent(driver, to("billing", priority=3, timestamp=now - 70))
    (info,) = await driver.inspect(["billing"])
    assert info.oldest_age == pytest.approx(70, abs=5)
