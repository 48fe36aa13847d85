"""What is on its way into somebody's hands when its partition goes to another process."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence

import pytest
from confluent_kafka import TopicPartition

from queuecraft import Message, Queue, QueueCraft, Retry, Worker
from queuecraft.drivers.base import ACCEPTED, Delivery, Move, Outgoing, Rejected
from queuecraft.drivers.kafka.member import Member
from queuecraft.drivers.kafka.place import Place
from queuecraft.drivers.kafka.subscription import KafkaSubscription
from queuecraft.model.errors import AlreadySettled
from tests.kafka.place import opened, running, until
from tests.runtime.support import eventually

billing = Queue[object]("billing")


async def test_a_partition_goes_at_once_though_records_of_it_are_about_to_be_handed_over(
    url: str,
) -> None:
    """They wait for Kafka to know of them, behind the very poll that hears of the revocation."""
    async with opened(url) as driver:
        await driver.declare(billing)
        messages = [Outgoing(b"{}", f"m-{n}", queue="billing") for n in range(4)]
        assert await driver.send(messages) == [ACCEPTED] * 4
        consumer = await driver.subscribe(billing, prefetch=10)
        assert isinstance(consumer, KafkaSubscription)
        member = consumer._member

        def fetched() -> bool:
            if len(consumer._ready) < 4 and consumer._fetching is None:
                consumer._fetch(10, 1.0)
            return consumer._fetching is None

        await eventually(fetched, timeout=10)
        assert member.silent
        go = threading.Event()

        def revoked() -> None:
            go.wait(5)
            ours = [TopicPartition(*spot) for spot in member._places]
            member._on_revoke(member._consumer, ours)

        revoking = asyncio.get_running_loop().run_in_executor(consumer._polling, revoked)
        receiving = asyncio.create_task(consumer.receive(10, 0.0))
        await asyncio.sleep(0)  # it has asked, and waits behind that
        go.set()
        async with asyncio.timeout(0.8):  # less than drain_timeout
            await revoking
        assert member.failed is None
        assert await receiving == []


async def test_what_nobody_has_begun_on_goes_at_once_when_its_consumer_is_asked(url: str) -> None:
    async with opened(url) as driver:
        await driver.declare(billing)
        messages = [Outgoing(b"{}", f"m-{n}", queue="billing") for n in range(4)]
        assert await driver.send(messages) == [ACCEPTED] * 4
        consumer = await driver.subscribe(billing, prefetch=10)
        assert isinstance(consumer, KafkaSubscription)
        member = consumer._member
        held: list[Delivery] = []
        asked: set[str] = set()
        async with asyncio.timeout(15):
            while len(held) < 4:
                held += await consumer.receive(10, 1.0)

        def leaving(deliveries: Sequence[Delivery]) -> None:
            asked.update(each.sent.id for each in deliveries)
            releasing.append(asyncio.ensure_future(consumer.release(deliveries)))

        releasing: list[asyncio.Future[None]] = []
        consumer.on_leaving = leaving
        ours = [TopicPartition(*spot) for spot in member._places]
        revoking = asyncio.get_running_loop().run_in_executor(
            consumer._polling, member._on_revoke, member._consumer, ours
        )
        async with asyncio.timeout(0.8):  # less than drain_timeout
            await revoking
        await asyncio.gather(*releasing)
        assert asked == {"m-0", "m-1", "m-2", "m-3"}
        assert member.failed is None
        assert consumer._ready == []


@pytest.mark.parametrize("asked", ["before", "meanwhile"])
async def test_what_is_finished_is_heard_of_while_a_partition_waits_for_it(
    url: str, asked: str
) -> None:
    """Also where Kafka is told just what is in hand, as after a crash, by the thread that waits."""
    async with opened(url.replace("drain_timeout=1", "drain_timeout=10")) as driver:
        await driver.declare(billing)
        messages = [Outgoing(b"{}", f"m-{n}", queue="billing") for n in range(3)]
        assert await driver.send(messages) == [ACCEPTED] * 3
        consumer = await driver.subscribe(billing, prefetch=3)
        assert isinstance(consumer, KafkaSubscription)
        member = consumer._member
        held: list[Delivery] = []
        async with asyncio.timeout(15):
            while len(held) < 3:
                held += await consumer.receive(3, 1.0)
        await eventually(lambda: consumer._fetching is None, timeout=10)
        consumer._exact = True
        go = threading.Event()

        def revoked() -> None:
            go.wait(5)
            ours = [TopicPartition(*spot) for spot in member._places]
            member._on_revoke(member._consumer, ours)

        loop, (one, two, three) = asyncio.get_running_loop(), held
        revoking = loop.run_in_executor(consumer._polling, revoked)
        if asked == "meanwhile":
            go.set()
            await eventually(lambda: one.token[0].leaving, timeout=5)
        acking = asyncio.create_task(consumer.ack([one]))
        await asyncio.sleep(0)  # it has asked
        go.set()
        async with asyncio.timeout(0.8):
            assert await acking == []
            await consumer.release([two])
        assert not revoking.done()
        async with asyncio.timeout(0.8):
            assert await consumer.ack([three]) == []
            await revoking
        await consumer.close()
        consumer = await driver.subscribe(billing, prefetch=3)
        (again,) = await consumer.receive(3, 5.0)
        assert (again.sent.id, again.redeliveries) == (two.sent.id, 0)


async def test_what_others_have_by_now_is_neither_acknowledged_nor_sent_on(url: str) -> None:
    async with opened(url) as driver:
        await driver.declare(billing)
        messages = [Outgoing(b"{}", f"m-{n}", queue="billing") for n in range(2)]
        assert await driver.send(messages) == [ACCEPTED] * 2
        consumer = await driver.subscribe(billing, prefetch=2)
        assert isinstance(consumer, KafkaSubscription)
        member = consumer._member
        held: list[Delivery] = []
        left: list[Delivery] = []
        async with asyncio.timeout(15):
            while len(held) < 2:
                held += await consumer.receive(2, 1.0)
        consumer.on_left = left.extend
        ours = [TopicPartition(*spot) for spot in member._places]
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(consumer._polling, member._on_revoke, member._consumer, ours)
        await asyncio.sleep(0)
        assert sorted(each.sent.id for each in left) == ["m-0", "m-1"]
        one, other = held
        elsewhere = Outgoing(b"{}", "m-x", queue="billing")
        (answer,) = await consumer.move([Move(one, elsewhere)])
        assert isinstance(answer, Rejected)
        assert isinstance(answer.error, AlreadySettled)
        assert await consumer.ack([other]) == [other]
        assert "m-x" not in [each.sent.id for each in await driver.peek("billing", 10)]
        assert member.failed is None


EVENTS = ("order.placed", "order.paid", "order.sent")


async def test_a_handler_that_takes_long_costs_its_process_only_what_goes_to_another(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    runs: dict[str, list[str]] = defaultdict(list)
    go = asyncio.Event()

    def shop(name: str) -> tuple[QueueCraft, Worker]:
        qc = QueueCraft(url)
        worker = qc.worker("billing", concurrency=24)

        async def charge(n: int, message: Message) -> None:
            runs[message.id].append(name)
            if name == "first":
                await go.wait()

        for each in EVENTS:
            worker.on(each, charge)
        return qc, worker

    async def publish(qc: QueueCraft) -> list[str]:
        return [await qc.publish(each, n, key=f"k-{n}") for n in range(8) for each in EVENTS]

    def has(*names: str) -> bool:
        return any(each == list(names) for each in runs.values())

    first, steady = shop("first")
    second, guest = shop("second")
    async with first, second:
        await steady.start()
        ids = await publish(first)
        await until(soon(lambda: set(runs) == set(ids)), bool)
        async with running(guest):
            await until(soon(lambda: has("first", "second")), bool)
            assert "went to another process before they were handled" in caplog.text
            go.set()
            await until(lambda: first.admin.inspect("billing"), lambda info: not info.ready)
            more = await publish(first)
            await until(soon(lambda: set(runs) == {*ids, *more}), bool)
            await until(lambda: first.admin.inspect("billing"), lambda info: not info.ready)
        await steady.stop()
    assert has("first")
    assert all(runs[each] in (["first"], ["first", "second"]) for each in ids)
    assert all(len(runs[each]) == 1 for each in more)
    assert "cannot consume" not in caplog.text


async def test_what_fails_while_its_partition_is_about_to_go_is_not_waited_for(
    url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be tried again here, in order, when its delay is over."""
    patient = url.replace("drain_timeout=1", "drain_timeout=10")
    drain, tell_leaving = Member._drain, KafkaSubscription._tell_leaving
    runs: dict[str, list[str]] = defaultdict(list)
    fails, took = asyncio.Event(), list[float]()

    def draining(self: Member, places: Sequence[Place], deadline: float) -> None:
        started = time.monotonic()
        drain(self, places, deadline)
        took.append(time.monotonic() - started)

    def telling(self: KafkaSubscription) -> None:
        tell_leaving(self)
        if self.queue == "billing":
            fails.set()

    monkeypatch.setattr(Member, "_drain", draining)
    monkeypatch.setattr(KafkaSubscription, "_tell_leaving", telling)

    def shop(name: str) -> tuple[QueueCraft, Worker]:
        qc = QueueCraft(patient)
        retry = Retry(max_retries=3, initial_delay=30)
        worker = qc.worker("billing", concurrency=24, ordering="key", retry=retry)

        async def charge(n: int, message: Message) -> None:
            runs[message.id].append(name)
            if name == "first":
                await fails.wait()
                raise ValueError("not now")

        for each in EVENTS:
            worker.on(each, charge)
        return qc, worker

    first, steady = shop("first")
    second, guest = shop("second")
    async with first, second, running(steady):
        ids = [await first.publish(e, n, key=f"k-{n}-{e}") for n in range(8) for e in EVENTS]
        await until(soon(lambda: set(runs) == set(ids)), bool)
        async with running(guest):
            await until(soon(lambda: any("second" in each for each in runs.values())), bool)
            assert max(took) < 5
    assert "went to another process before they were handled" not in caplog.text


def soon(condition: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    """A condition for `until`."""

    async def ask() -> bool:
        return condition()

    return ask
