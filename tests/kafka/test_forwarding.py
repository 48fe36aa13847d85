"""What waits for its time on a real Kafka, and what it does to others that wait."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from queuecraft import ConfigError, Queue, QueueCraft
from queuecraft.drivers.base import ACCEPTED, Outgoing
from queuecraft.drivers.kafka import forwarding, undelivered
from queuecraft.drivers.kafka.driver import KafkaDriver
from queuecraft.drivers.kafka.envelope import record_of
from queuecraft.drivers.kafka.member import Member
from queuecraft.runtime.dead_message import DeadMessage
from queuecraft.testing import Ledger
from queuecraft.testing.failpoints import to_be_killed_at
from tests.brokers.kafka import client
from tests.kafka.place import Order, opened, order_placed, received, running, topic, until
from tests.runtime.support import eventually

billing = Queue[object]("billing")


async def sent(driver: KafkaDriver, ids: list[str], delay: float) -> None:
    """These are to come to the queue later."""
    due = time.time() + delay
    messages = [Outgoing(b"{}", each, queue="billing", due_at=due) for each in ids]
    assert await driver.send(messages) == [ACCEPTED] * len(ids)


def forwarding_member(driver: KafkaDriver) -> Member:
    forwarder = driver._forwarder
    assert forwarder is not None
    assert forwarder._subscription is not None
    return forwarder._subscription._member


def taken(driver: KafkaDriver) -> int:
    """How many the process has taken to wait here."""
    return sum(place.progress.gap for place in tuple(forwarding_member(driver)._places.values()))


def forwards(driver: KafkaDriver) -> int:
    """Of how many partitions the process has what waits."""
    forwarder = driver._forwarder
    subscription = None if forwarder is None else forwarder._subscription
    return 0 if subscription is None else len(subscription._member._places)


async def test_many_that_wait_for_hours_do_not_hold_up_one_that_waits_for_a_moment(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "AHEAD", 20)
    async with opened(f"{url}&partitions=1") as driver:
        await driver.declare(billing)
        await sent(driver, [f"far-{n}" for n in range(60)], 86_400)
        consumer = await driver.subscribe(billing, prefetch=10)
        await eventually(lambda: taken(driver) >= 20, timeout=10)
        await sent(driver, ["near"], 0.3)
        assert await received(consumer, 1, timeout=5) == ["near"]


def watched(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The topics that nothing was wanted of for a while."""
    spared: set[str] = set()
    let_on = Member._let_on

    def looking(self: Member) -> None:
        let_on(self)
        spared.update(self.spared)

    monkeypatch.setattr(Member, "_let_on", looking)
    return spared


async def test_a_tier_that_is_full_is_read_on_when_some_of_it_has_moved(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "AHEAD", 100)
    spared = watched(monkeypatch)
    ids = [f"m-{n}" for n in range(3000)]
    async with opened(f"{url}&partitions=2") as driver:
        await driver.declare(billing)
        await sent(driver, ids, 1.0)
        consumer = await driver.subscribe(billing, prefetch=1000)
        assert sorted(await received(consumer, len(ids))) == sorted(ids)
    assert spared


async def test_messages_larger_than_all_that_may_wait_here_move_on_all_the_same(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "AHEAD_BYTES", 1000)
    spared = watched(monkeypatch)
    async with opened(f"{url}&partitions=1") as driver:
        await driver.declare(billing)
        consumer = await driver.subscribe(billing, prefetch=10)
        for number in range(3):
            due = time.time() + 1.5
            message = Outgoing(bytes(5000), f"m-{number}", queue="billing", due_at=due)
            assert await driver.send([message]) == [ACCEPTED]
        assert await received(consumer, 3) == ["m-0", "m-1", "m-2"]
    assert spared


async def test_what_waits_costs_nobody_his_place_when_another_process_comes(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    hasty = url.replace("drain_timeout=1", "drain_timeout=0.5")
    ids = {f"m-{n}" for n in range(20)}
    async with opened(hasty) as one, opened(hasty) as two:
        await one.declare(billing)
        due = time.time() + 5
        messages = [
            Outgoing(b"{}", each, queue="billing", due_at=due, key=each) for each in sorted(ids)
        ]
        assert await one.send(messages) == [ACCEPTED] * len(ids)
        consumers = [await one.subscribe(billing, prefetch=20)]
        await eventually(lambda: taken(one) == len(ids), timeout=10)
        consumers.append(await two.subscribe(billing, prefetch=20))
        await eventually(lambda: forwards(two) and forwards(one) + forwards(two) == 4, timeout=10)
        came: list[str] = []
        async with asyncio.timeout(15):
            while len(came) < len(ids):
                for consumer in consumers:
                    deliveries = await consumer.receive(20, 0.1)
                    assert not deliveries or time.time() >= due
                    await consumer.ack(deliveries)
                    came += [each.sent.id for each in deliveries]
    assert "went to another process" not in caplog.text
    assert sorted(came) == sorted(ids)


async def narrow(url: str, name: str) -> Callable[[], None]:
    """A topic that takes no more than a thousand bytes at once, until it is widened."""
    admin = AdminClient(client(url))
    made = NewTopic(topic(url, name), 1, config={"max.message.bytes": "1000"})
    await asyncio.to_thread(lambda: admin.create_topics([made])[made.topic].result(10))

    def widen() -> None:
        wide = ConfigEntry(
            "max.message.bytes", "100000", incremental_operation=AlterConfigOpType.SET
        )
        place = ConfigResource(ResourceType.TOPIC, topic(url, name), incremental_configs=[wide])
        admin.incremental_alter_configs([place])[place].result(10)

    return widen


async def undelivered_letters(qc: QueueCraft) -> list[DeadMessage]:
    """What is kept as undelivered."""
    try:
        return list(await qc.dead_letters.list("qc.undelivered"))
    except ConfigError:
        return []  # nothing had to be kept yet


async def test_a_delayed_event_that_its_topic_refuses_for_good_is_kept_as_a_dead_letter(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undelivered, "FIRST", 0.05)
    seen = Ledger()
    qc = QueueCraft(f"{url}&partitions=1")
    orders = qc.worker(Queue("billing", Order))
    orders.on(Queue("billing", Order), seen.recording("billing"))
    orders.on(order_placed, seen.recording("billing"))
    await narrow(url, "order.placed")
    async with qc, running(orders):
        id = await qc.publish(order_placed, Order("o" * 2000), delay=0.2, headers={"n": 1})
        (letter,) = await until(lambda: undelivered_letters(qc), bool)
        assert (letter.id, letter.reason, letter.event) == (id, "undelivered", "order.placed")
        assert (letter.error_type, letter.headers["n"]) == ("", 1)
        assert "make it smaller, or raise message.max.bytes of the topic" in letter.error
        report = await qc.dead_letters.redrive("qc.undelivered", to="billing")
        assert report.moved == 1
        await seen.wait_for(timeout=20, billing=1)
    assert seen.ids() == [id]


DOOMED = """
import asyncio
import sys
from queuecraft import QueueCraft
from queuecraft.drivers.kafka import undelivered
from tests.kafka.place import Order, order_placed

undelivered.FIRST = 0.05

async def main():
    qc = QueueCraft(sys.argv[1])
    billing = qc.worker("billing").on(order_placed, print)
    async with qc:
        await billing.start()
        await qc.publish(order_placed, Order("o" * 2000), delay=0.2, message_id="m-1")
        await asyncio.sleep(30)

asyncio.run(main())
"""


@pytest.mark.parametrize(("point", "letters"), [("before", 1), ("after", 2)])
async def test_who_dies_keeping_what_is_refused_for_good_loses_nothing(
    url: str, point: str, letters: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undelivered, "FIRST", 0.05)
    url = f"{url}&partitions=1&session_timeout=1"
    await narrow(url, "order.placed")
    victim = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", DOOMED, url), env=to_be_killed_at(f"forward.{point}_keep")
    )
    assert await asyncio.wait_for(victim.wait(), 30) == -signal.SIGKILL
    qc = QueueCraft(url)
    billing = qc.worker("billing").on(order_placed, Ledger().recording("billing"))
    async with qc, running(billing):
        # Kept and not acknowledged, it is kept once more; never acknowledged and not kept.
        kept = await until(lambda: undelivered_letters(qc), lambda found: len(found) == letters)
    assert {each.id for each in kept} == {"m-1"}


async def test_what_cannot_be_kept_either_stays_and_is_tried_again(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(undelivered, "FIRST", 0.02)
    qc = QueueCraft(f"{url}&partitions=1")
    billing = qc.worker("billing").on(order_placed, Ledger().recording("billing"))
    await narrow(url, "order.placed")
    widen = await narrow(url, "qc.undelivered.dlq")
    async with qc, running(billing):
        id = await qc.publish(order_placed, Order("o" * 2000), delay=0.2)
        await eventually(
            lambda: caplog.text.count("cannot be kept in qc.undelivered.dlq") >= 2, timeout=10
        )
        assert await undelivered_letters(qc) == []
        await asyncio.to_thread(widen)
        (letter,) = await until(lambda: undelivered_letters(qc), bool)
        assert letter.id == id


@pytest.mark.parametrize(("age", "further"), [(40.0, True), (0.0, False)])
async def test_time_in_a_topic_counts_also_before_a_message_is_read(
    url: str, age: float, further: bool
) -> None:
    """Or those who come after many others wait once more for as long as the first of them."""
    async with opened(f"{url}&partitions=1") as driver:
        await driver.declare(billing)
        await sent(driver, ["m-0"], 31)  # its topic is there now
        message = Outgoing(b"{}", "m-1", queue="billing", due_at=time.time() + 86_400)
        there = driver.names.retry("billing", 3)
        name, value, key, headers = record_of(message, (there, "q:billing"))
        producer = Producer(client(url))
        moment = round(1000 * (time.time() - age))
        producer.produce(name, value, key, headers=headers, timestamp=moment)
        await asyncio.to_thread(producer.flush)
        consumer = await driver.subscribe(billing, prefetch=10)
        await eventually(lambda: taken(driver) == 2, timeout=10)
        longest = driver.names.retry("billing", 5)
        if further:
            await eventually(lambda: longest in driver._cluster.topics, timeout=10)
        else:
            await sent(driver, ["near"], 0.3)  # it has looked again by then
            assert await received(consumer, 1) == ["near"]
            assert longest not in driver._cluster.topics
