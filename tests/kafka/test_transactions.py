"""Records of other programs' transactions: each ends with an offset that no consumer is given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from queuecraft import QueueCraft
from queuecraft.drivers.base import Delivery
from queuecraft.drivers.kafka import member
from queuecraft.drivers.kafka.driver import KafkaDriver
from queuecraft.drivers.kafka.subscription import KafkaSubscription
from queuecraft.testing import Ledger
from tests.brokers.kafka import client
from tests.kafka.place import bound, opened, running, topic, until

PATIENCE = 20.0
EVENT = "order.placed"

Write = Callable[..., None]


@pytest.fixture
def url(url: str) -> str:
    """With topics of one partition, so that all transactions are in it."""
    return f"{url}&partitions=1"


@pytest.fixture
def write(url: str) -> Write:
    """Writes records in one transaction, and ends it."""
    name = topic(url, EVENT)
    make(url)
    producer = Producer(client(url, transactional_id=name))
    producer.init_transactions(PATIENCE)

    def write(*values: bytes, abort: bool = False) -> None:
        producer.begin_transaction()
        for value in values:
            producer.produce(name, value)
        producer.flush(PATIENCE)
        end = producer.abort_transaction if abort else producer.commit_transaction
        end(PATIENCE)

    return write


def make(url: str) -> None:
    """Make the topic."""
    admin, name = AdminClient(client(url)), topic(url, EVENT)
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(PATIENCE)


async def ready(driver: KafkaDriver) -> int:
    """How many are told to be in the queue."""
    (info,) = await driver.inspect(["billing"])
    assert info.ready is not None
    return info.ready


async def nothing_more(driver: KafkaDriver, subscription: KafkaSubscription, left: int) -> None:
    """Ask for more until so many are told to be in the queue; none comes."""

    async def asked() -> int:
        assert await subscription.receive(1, 0.2) == []
        return await ready(driver)

    await until(asked, lambda count: count == left)


async def got(subscription: KafkaSubscription, count: int) -> list[Delivery]:
    """So many deliveries, none of them settled."""
    found: list[Delivery] = []
    async with asyncio.timeout(PATIENCE):
        while len(found) < count:
            found += await subscription.receive(count - len(found), 0.2)
    return found


def bodies(deliveries: list[Delivery]) -> list[bytes]:
    return [bytes(each.sent.body) for each in deliveries]


async def test_what_ends_a_transaction_is_not_taken_for_a_message(url: str, write: Write) -> None:
    seen = Ledger()
    qc = QueueCraft(url)
    billing = qc.worker("billing").on(EVENT, seen.recording("billing"))
    async with qc, running(billing):
        for n in range(3):
            await asyncio.to_thread(write, b'{"n":%d}' % n)
        await seen.wait_for(timeout=PATIENCE, billing=3)
        await until(lambda: qc.admin.inspect("billing"), lambda info: info.ready == 0)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_an_aborted_transaction_at_the_end_leaves_nothing_to_do(
    url: str, write: Write, protocol: str
) -> None:
    async with opened(f"{url}&group_protocol={protocol}") as driver:
        await driver.declare(bound("billing", EVENT))
        subscription = await driver.subscribe(bound("billing", EVENT), prefetch=10)
        await asyncio.to_thread(write, b"kept")
        assert await subscription.ack(await got(subscription, 1)) == []
        await asyncio.to_thread(write, b"dropped", b"dropped too", abort=True)
        await nothing_more(driver, subscription, left=0)


async def test_a_topic_of_which_all_was_aborted_has_nothing_to_do(url: str, write: Write) -> None:
    async with opened(url) as driver:
        await driver.declare(bound("billing", EVENT))
        await asyncio.to_thread(write, b"dropped", abort=True)
        assert await ready(driver) > 0  # nobody has looked into it yet
        subscription = await driver.subscribe(bound("billing", EVENT), prefetch=10)
        await nothing_more(driver, subscription, left=0)
        await asyncio.to_thread(write, b"kept")
        assert bodies(await got(subscription, 1)) == [b"kept"]


async def test_who_is_given_a_queue_that_ends_before_a_transaction_does_goes_to_its_end(
    url: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those did who knew of no ends."""
    async with opened(url) as driver:
        await driver.declare(bound("billing", EVENT))
        with monkeypatch.context() as patch:
            patch.setattr(member, "Consumer", Blind)
            subscription = await driver.subscribe(bound("billing", EVENT), prefetch=10)
            await asyncio.to_thread(write, b"1")
            assert await subscription.ack(await got(subscription, 1)) == []
            await subscription.close()
        assert await ready(driver) == 1
        subscription = await driver.subscribe(bound("billing", EVENT), prefetch=10)
        await nothing_more(driver, subscription, left=0)


class Blind:
    """A consumer that is not told where partitions end."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._real: Any = Consumer({**settings, "enable.partition.eof": False})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@pytest.mark.parametrize("abort", [False, True])
async def test_a_message_before_the_end_that_is_not_finished_is_not_passed(
    url: str, write: Write, abort: bool
) -> None:
    async with opened(url) as driver:
        await driver.declare(bound("billing", EVENT))
        subscription = await driver.subscribe(bound("billing", EVENT), prefetch=10)
        await asyncio.to_thread(write, b"1", b"2", b"3")
        if abort:
            await asyncio.to_thread(write, b"dropped", abort=True)
        first, held, last = await got(subscription, 3)
        assert await subscription.ack([first, last]) == []
        await nothing_more(driver, subscription, left=1)
        await subscription.close()
        assert await ready(driver) == 1

        subscription = await driver.subscribe(bound("billing", EVENT), prefetch=10)
        again = await got(subscription, 1)
        assert bodies(again) == bodies([held])
        await nothing_more(driver, subscription, left=1)
        assert await subscription.ack(again) == []
        await nothing_more(driver, subscription, left=0)


async def test_what_was_given_back_is_not_passed(url: str, write: Write) -> None:
    async with opened(url) as driver:
        await driver.declare(bound("billing", EVENT))
        subscription = await driver.subscribe(bound("billing", EVENT), prefetch=10)
        await asyncio.to_thread(write, b"1", b"2", b"3")
        taken = await got(subscription, 3)
        await nothing_more(driver, subscription, left=3)
        await subscription.release(taken)
        again = await got(subscription, 3)
        assert bodies(again) == [b"1", b"2", b"3"]
        assert await subscription.ack(again[:1]) == []
        await subscription.release(again[1:])
        await subscription.close()
        assert await ready(driver) == 2

        subscription = await driver.subscribe(bound("billing", EVENT), prefetch=10)
        assert bodies(await got(subscription, 2)) == [b"2", b"3"]


async def test_what_comes_while_nobody_wants_any_is_not_passed(url: str, write: Write) -> None:
    """A member that is only heard of pauses its partitions, and goes on where it was."""
    async with opened(url) as driver:
        await driver.declare(bound("billing", EVENT))
        subscription = await driver.subscribe(bound("billing", EVENT), prefetch=2)
        await asyncio.to_thread(write, b"1")
        held = await got(subscription, 1)
        for n in range(2, 12):
            await asyncio.to_thread(write, b"%d" % n)
            await asyncio.sleep(0.15)  # its thread pauses, and looks, meanwhile
        assert await subscription.ack(held) == []
        seen: list[bytes] = []
        while len(seen) < 10:
            some = await got(subscription, 1)
            seen += bodies(some)
            assert await subscription.ack(some) == []
        assert seen == [b"%d" % n for n in range(2, 12)]
        await nothing_more(driver, subscription, left=0)


async def test_a_transaction_that_is_not_over_yet_is_not_passed(url: str) -> None:
    name = topic(url, EVENT)
    async with opened(url) as driver:
        await driver.declare(bound("billing", EVENT))
        subscription = await driver.subscribe(bound("billing", EVENT), prefetch=10)
        producer = Producer(client(url, transactional_id=name))
        await asyncio.to_thread(producer.init_transactions, PATIENCE)
        producer.begin_transaction()
        producer.produce(name, b"late")
        await asyncio.to_thread(producer.flush, PATIENCE)
        await nothing_more(driver, subscription, left=1)
        await asyncio.to_thread(producer.commit_transaction, PATIENCE)
        late = await got(subscription, 1)
        assert bodies(late) == [b"late"]
        assert await subscription.ack(late) == []
        await nothing_more(driver, subscription, left=0)


async def test_an_end_that_is_found_costs_one_look_and_no_more(
    url: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one for each record, and no commit where nothing has changed. Nor does one wait for what
    comes next, by which its partition may be given away, and got anew from further back."""
    monkeypatch.setattr(member, "Consumer", Counting)
    monkeypatch.setattr(Counting, "kept", 0)
    monkeypatch.setattr(Counting, "ends", 0)
    monkeypatch.setattr(Counting, "commits", 0)
    async with opened(url) as driver:
        await driver.declare(bound("billing", EVENT))
        await asyncio.to_thread(write, *(b"%d" % n for n in range(500)))
        subscription = await driver.subscribe(bound("billing", EVENT), prefetch=500)
        assert await subscription.ack(await got(subscription, 500)) == []
        await nothing_more(driver, subscription, left=0)
        commits = Counting.commits
        assert await subscription.receive(1, 1.0) == []
        assert Counting.commits == commits
    assert 0 < Counting.ends < 20
    assert Counting.kept == 0


class Counting:
    """A consumer that counts what it is told of ends, and says of commits."""

    ends = 0
    commits = 0
    kept = 0  # while more is asked for

    def __init__(self, settings: dict[str, Any]) -> None:
        self._real: Any = Consumer(settings)
        self._end = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def poll(self, *args: float) -> Any:
        record = self._real.poll(*args)
        error = None if record is None else record.error()
        self._end = error is not None and error.code() == KafkaError._PARTITION_EOF
        Counting.ends += self._end
        return record

    def consume(self, *args: float) -> Any:
        Counting.kept += self._end
        return self._real.consume(*args)

    def commit(self, **what: Any) -> Any:
        Counting.commits += 1
        return self._real.commit(**what)


async def test_a_capture_of_all_there_is_ends(url: str, write: Write, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from queuecraft.pipeline.capture import capture
    from queuecraft.pipeline.lake import Lake

    async with QueueCraft(url) as qc:
        await qc.admin.declare("tap", EVENT, dead_letters=False)
        await asyncio.to_thread(write, b'{"n":1}', b'{"n":2}')
        await asyncio.to_thread(write, b'{"n":3}', abort=True)
        async with asyncio.timeout(PATIENCE):
            captured = await capture(qc, "tap", Lake.at(tmp_path), once=True, seconds=1)
        assert captured.rows == 2
        assert (await qc.admin.inspect("tap")).ready == 0
