"""Messages of one key keep their order, whoever gives them back, stops, or is cut off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from secrets import token_hex
from urllib.parse import urlsplit

import pytest

from queuecraft import Message, Queue, QueueCraft, Worker
from queuecraft.drivers.base import Delivery, Driver, Outgoing, Subscription
from queuecraft.drivers.rabbitmq import drivers
from queuecraft.drivers.target import Target
from queuecraft.facts import Disconnected
from queuecraft.model.policy import Policy
from tests.brokers.management import quoted, vhost_of
from tests.brokers.rabbitmq import RabbitMQ
from tests.rabbitmq.place import number, running, until, until_ready

KINDS = ["quorum", "classic"]
KEYS = 3
MANY = 120  # more than a worker may hold, by far: what it holds is not to end behind the rest
HELD = 20
LIMIT = 2  # redeliveries, before a message is set aside


class Line:
    """Who handled what, one after the other."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.redeliveries: list[int] = []
        self.gates: dict[int, asyncio.Event] = {}

    def worker(self, qc: QueueCraft, kind: str, *, prefetch: int = HELD) -> Worker:
        queue = Queue("numbers", arguments={"x-queue-type": kind})
        worker = qc.worker(
            queue, ordering="key", concurrency=KEYS, prefetch=prefetch, max_redeliveries=LIMIT
        )
        return worker.on(number, self.handle)

    async def handle(self, n: int, message: Message[int]) -> None:
        self.begun.append(n)
        self.redeliveries.append(message.redeliveries)
        if n in self.gates:
            await self.gates[n].wait()
        await asyncio.sleep(0.002)

    async def until(self, count: int) -> None:
        await until(self._different, lambda different: different >= count)

    async def _different(self) -> int:
        return len(set(self.begun))

    @property
    def overtaken(self) -> list[int]:
        """Those that were begun though one before them, of the same key, had never been."""
        known: set[int] = set()
        wrong: list[int] = []
        for n in self.begun:
            known.add(n)
            if not known.issuperset(range(n % KEYS, n, KEYS)):
                wrong.append(n)
        return wrong


async def publish(qc: QueueCraft) -> None:
    for n in range(MANY):
        await qc.publish(number, n, key=str(n % KEYS))


@pytest.mark.parametrize("kind", KINDS)
async def test_workers_that_stop_leave_what_they_have_not_begun_in_its_place(
    rabbitmq_url: str, kind: str
) -> None:
    line = Line()
    async with QueueCraft(rabbitmq_url) as qc:
        await line.worker(qc, kind).declare()
        await publish(qc)
    for count in (10, 40, 70, MANY):
        qc = QueueCraft(rabbitmq_url)  # as in a process of its own
        async with qc, running(line.worker(qc, kind)):
            await line.until(count)
    assert line.overtaken == []
    assert sorted(line.begun) == list(range(MANY))
    assert line.redeliveries == [0] * MANY  # nobody has died


@pytest.mark.parametrize("kind", KINDS)
async def test_who_may_not_write_notes_still_works_in_order(
    rabbitmq: RabbitMQ, rabbitmq_url: str, kind: str
) -> None:
    name = f"ada-{token_hex(4)}"
    place = f"permissions/{quoted(vhost_of(rabbitmq_url))}/{name}"
    rights = {"configure": r"^(?!qc\.first\.)", "write": ".*", "read": ".*"}
    rabbitmq.management.call("PUT", f"users/{name}", {"password": "secret", "tags": ""})
    rabbitmq.management.call("PUT", place, rights)
    parts = urlsplit(rabbitmq_url)
    url = f"amqp://{name}:secret@{parts.hostname}:{parts.port}{parts.path}"
    line = Line()
    try:
        async with QueueCraft(url) as qc:
            await line.worker(qc, kind).declare()
            await publish(qc)
        for count in (10, MANY):
            qc = QueueCraft(url)
            async with qc, running(line.worker(qc, kind)):
                await line.until(count)
    finally:
        rabbitmq.management.call("DELETE", f"users/{name}")
    assert line.overtaken == []
    assert sorted(line.begun) == list(range(MANY))
    assert set(line.redeliveries) == {0, 1}  # what the broker tells is all there is


@pytest.mark.parametrize("kind", KINDS)
async def test_a_worker_that_is_paused_and_resumed_goes_on_where_it_was(
    rabbitmq_url: str, kind: str
) -> None:
    line = Line()
    line.gates = {7: asyncio.Event()}
    qc = QueueCraft(rabbitmq_url)
    worker = line.worker(qc, kind)
    async with qc, running(worker):
        await publish(qc)
        await line.until(15)
        for count in (20, 25, 30):
            worker.pause()
            await until(lambda: held_by(worker), lambda held: held <= 1)
            worker.resume()
            await line.until(count)
        line.gates[7].set()
        await line.until(MANY)
        await until_ready(qc, "numbers", 0)
    assert line.overtaken == []
    assert line.redeliveries == [0] * MANY  # nothing has happened to them


@pytest.mark.parametrize("kind", KINDS)
async def test_what_runs_is_given_back_in_its_place_too(rabbitmq_url: str, kind: str) -> None:
    line = Line()
    line.gates = {n: asyncio.Event() for n in range(KEYS)}
    qc = QueueCraft(rabbitmq_url)
    async with qc:
        worker = line.worker(qc, kind)
        await worker.start()
        await publish(qc)
        await line.until(KEYS)
        await worker.stop(drain=False, requeue_in_flight=True)
    line.gates.clear()
    qc = QueueCraft(rabbitmq_url)
    async with qc, running(line.worker(qc, kind)):
        await line.until(MANY)
    assert line.overtaken == []
    assert sorted(line.begun[:KEYS]) == sorted(line.begun[KEYS : 2 * KEYS])
    assert len(line.begun) == MANY + KEYS


@pytest.mark.parametrize("kind", KINDS)
async def test_a_lost_connection_repeats_messages_and_keeps_their_order(
    rabbitmq: RabbitMQ, rabbitmq_url: str, kind: str
) -> None:
    line = Line()
    line.gates = {20: asyncio.Event()}
    lost: list[Disconnected] = []
    qc = QueueCraft(rabbitmq_url, reconnect_delay=0.05)
    qc.observe(Disconnected, lost.append)
    async with qc, running(line.worker(qc, kind)):
        await publish(qc)
        await line.until(25)
        await asyncio.to_thread(rabbitmq.management.close_connections, rabbitmq_url, at_least=2)
        line.gates[20].set()
        await line.until(MANY)
    assert lost
    assert line.overtaken == []


@pytest.mark.parametrize("kind", KINDS)
async def test_who_stands_by_goes_on_where_the_other_has_stopped(
    rabbitmq: RabbitMQ, rabbitmq_url: str, kind: str
) -> None:
    line = Line()

    async def consumers() -> int:
        path = f"consumers/{quoted(vhost_of(rabbitmq_url))}"
        everyone = await asyncio.to_thread(rabbitmq.management.call, "GET", path)
        return sum(each["queue"]["name"] == "numbers" for each in everyone)

    first, second = QueueCraft(rabbitmq_url), QueueCraft(rabbitmq_url)
    ahead, behind = line.worker(first, kind), line.worker(second, kind)
    line.gates = {7: asyncio.Event()}
    async with first, second:
        await ahead.start()
        await until(consumers, lambda count: count == 1)
        async with running(behind):
            await until(consumers, lambda count: count == 2)
            await publish(first)
            await line.until(15)
            stopping = asyncio.create_task(ahead.stop())
            await asyncio.sleep(0)
            line.gates[7].set()  # while it stops, the other has to wait
            await stopping
            await line.until(MANY)
    assert line.overtaken == []
    assert len(line.begun) == MANY


@pytest.mark.parametrize("kind", KINDS)
async def test_what_was_given_back_is_received_again_in_its_place(
    rabbitmq_url: str, kind: str
) -> None:
    async with eight_messages(rabbitmq_url, kind) as join:
        consumer = await join(5)
        one, two, three, four = await some(consumer, 4)
        await consumer.release([four, two])
        again = await some(consumer, 3)
        assert ids(again) == ["m-2", "m-4", "m-5"]  # the fifth had come, and nobody had asked
        assert [each.redeliveries for each in again] == [0, 0, 0]
        assert list(await consumer.ack([two, four])) == [two, four]
        assert list(await consumer.ack([one, three, *again])) == []
        assert ids(await some(consumer, 3)) == ["m-6", "m-7", "m-8"]


async def test_a_release_wakes_who_waits_for_a_message(rabbitmq_url: str) -> None:
    async with eight_messages(rabbitmq_url, "quorum") as join:
        consumer = await join(2)
        one, two = await some(consumer, 2)
        waiting = asyncio.create_task(consumer.receive(2, 30))
        await asyncio.sleep(0.05)
        await consumer.release([one])
        assert ids(await waiting) == ["m-1"]
        assert list(await consumer.ack([two])) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_the_next_consumer_gets_everything_in_order_when_the_first_has_ended(
    rabbitmq_url: str, kind: str
) -> None:
    async with eight_messages(rabbitmq_url, kind) as join:
        consumer = await join(6)
        held = await some(consumer, 6)
        standby = await join(6)
        await consumer.ack([held[0], held[3]])
        await consumer.release(held[4:])
        assert await standby.receive(1, 0.3) == []
        await consumer.close()
        assert ids(await some(standby, 6)) == ["m-2", "m-3", "m-5", "m-6", "m-7", "m-8"]


@pytest.mark.parametrize("kind", KINDS)
async def test_only_the_first_is_condemned_for_what_all_have_lived_through(
    rabbitmq_url: str, kind: str
) -> None:
    """A consumer that dies takes with it all it holds, and RabbitMQ cannot tell which of them has
    killed it. Those that may only have waited are to be tried, one by one."""
    async with eight_messages(rabbitmq_url, kind) as join:
        for died in range(5):
            held = await some(await join(4), 4)
            assert ids(held) == ["m-1", "m-2", "m-3", "m-4"]
            assert [each.redeliveries for each in held] == [died, *[min(died, LIMIT)] * 3]
            await join.die()


@pytest.mark.parametrize("kind", KINDS)
async def test_who_ends_with_something_in_hand_has_died_and_who_has_given_it_back_has_not(
    rabbitmq_url: str, kind: str
) -> None:
    async with eight_messages(rabbitmq_url, kind) as join:
        told: list[list[int]] = []
        for gives_back in (True, False, True, False, False, False, True):
            consumer = await join(4)
            held = await some(consumer, 2)
            told.append([each.redeliveries for each in held])
            if gives_back:
                await consumer.release(held)
            await consumer.close()
    assert told == [[0, 0], [0, 0], [1, 1], [0, 0], [1, 1], [2, 2], [3, 2]]


async def test_the_note_about_deaths_is_not_listed_and_goes_with_the_worker(
    rabbitmq: RabbitMQ, rabbitmq_url: str
) -> None:
    line = Line()
    qc = QueueCraft(rabbitmq_url)

    def noted() -> bool:
        return "qc.first.numbers" in {q["name"] for q in rabbitmq.management.queues(rabbitmq_url)}

    async with qc:
        async with running(line.worker(qc, "quorum")):
            await qc.publish(number, 0, key="0")
            await line.until(1)
            assert await asyncio.to_thread(noted)
            assert [info.name for info in await qc.admin.queues()] == ["numbers", "numbers.dlq"]
        assert not await asyncio.to_thread(noted)


class Joining:
    """Consumers of one queue, each as in a process of its own."""

    def __init__(self, url: str, queue: Queue) -> None:
        self._url = url
        self._queue = queue
        self._drivers: list[Driver] = []

    async def __call__(self, prefetch: int) -> Subscription:
        (driver,) = drivers(Target(self._url))
        self._drivers.append(driver)
        await driver.open()
        await driver.declare(self._queue)
        return await driver.subscribe(self._queue, prefetch=prefetch)

    async def die(self) -> None:
        """All of them, without a word about what they hold."""
        while self._drivers:
            await self._drivers.pop().close()


@asynccontextmanager
async def eight_messages(url: str, kind: str) -> AsyncGenerator[Joining]:
    """In a queue of that kind, for one consumer at a time."""
    billing = Queue(
        "billing",
        arguments={"x-queue-type": kind},
        single_active=True,
        policy=Policy(max_redeliveries=LIMIT),
    )
    (driver,) = drivers(Target(url))
    await driver.open()
    join = Joining(url, billing)
    try:
        await driver.declare(billing)
        await driver.send([Outgoing(b"{}", f"m-{n}", queue="billing") for n in range(1, 9)])
        yield join
    finally:
        await join.die()
        await driver.close()


async def held_by(worker: Worker) -> int:
    return worker.in_flight


async def some(consumer: Subscription, count: int) -> list[Delivery]:
    got: list[Delivery] = []
    while len(got) < count:
        more = await consumer.receive(count - len(got), 5)
        assert more, f"only {ids(got)} came"
        got += more
    return got


def ids(deliveries: Iterable[Delivery]) -> list[str]:
    return [each.sent.id for each in deliveries]
