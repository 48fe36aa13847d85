"""Topics by the offsets of their records, without Spark."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from queuecraft import QueueCraft, Retry
from queuecraft.drivers.base import Delivery
from queuecraft.model.errors import ConfigError, ConnectionLost, QueueError, UnsupportedFeature
from queuecraft.model.settings import Settings
from queuecraft.pipeline.source import kafka as module
from queuecraft.pipeline.source.log import EARLIEST, LATEST, Log, Offset, log_of
from tests.brokers.kafka import Kafka, client
from tests.kafka.place import topic, until

PATIENCE = 20.0


@pytest.fixture
def url(kafka_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(module, "LATE", 0.5)
    return f"{kafka_url}&partitions=2&refresh=0.01"


@asynccontextmanager
async def opened(url: str, name: str, **options: Any) -> AsyncGenerator[Log]:
    log = log_of(Settings(url=url), name, **options)
    try:
        await log.open()
        yield log
    finally:
        await log.close()


async def deliveries(log: Log, start: Offset, end: Offset) -> list[Delivery]:
    """All of a range, as its tasks read it."""
    return [
        each for part in log.ranges(start, end) async for some in log.read(*part) for each in some
    ]


async def read(log: Log, start: Offset, end: Offset) -> list[str]:
    return sorted(each.sent.id for each in await deliveries(log, start, end))


async def declared(url: str, queue: str = "billing", *patterns: str) -> None:
    async with QueueCraft(url) as qc:
        await qc.admin.declare(queue, *patterns)


async def published(url: str, count: int, event: str = "order.placed", **more: Any) -> list[str]:
    async with QueueCraft(url) as qc:
        ids = await qc.publish_many(event, [{"n": n} for n in range(count)], **more)
        return sorted(map(str, ids))


def produced(url: str, topic: str, values: Sequence[bytes | None], **more: Any) -> None:
    """As others do it, into the first partition."""
    producer = Producer(client(url))
    for value in values:
        producer.produce(topic, value, partition=0, **more)
    assert producer.flush(PATIENCE) == 0


def made(url: str, name: str, partitions: int = 2, **config: str) -> str:
    name = topic(url, name)
    wanted = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
    admin = AdminClient(client(url))
    admin.create_topics([wanted])[name].result(PATIENCE)
    return name


def cut(url: str, topic: str, *ends: int) -> None:
    """As if the records before these had been there for too long."""
    places = [TopicPartition(topic, number, end) for number, end in enumerate(ends)]
    admin = AdminClient(client(url))
    for future in admin.delete_records(places).values():
        future.result(PATIENCE)


def removed(url: str, topic: str) -> None:
    admin = AdminClient(client(url))
    admin.delete_topics([topic])[topic].result(PATIENCE)
    while topic in admin.list_topics(timeout=PATIENCE).topics:
        pass


async def test_an_event_is_read_from_one_offset_to_another(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHARE", 3)  # so that several tasks read
    monkeypatch.setattr(module, "BATCH", 2)
    await declared(url, "billing", "order.placed")
    ids = await published(url, 20)
    async with opened(url, "order.placed", event=True) as log:
        start, end = await log.at(EARLIEST), await log.at(LATEST)
        assert len(log.ranges(start, end)) >= 7
        assert await read(log, start, end) == ids
        middle = await log.after(start, 7, None)
        first, second = await read(log, start, middle), await read(log, middle, end)
        assert len(first) == 7
        assert sorted([*first, *second]) == ids
        text = msgspec.json.encode(middle).decode()
        assert await log.at(text) == middle
        assert await log.after(middle, None, None) == end
        assert await log.after(end, None, None) == end
        assert log.ranges(end, end) == []
        more = await published(url, 3)
        assert await log.after(end, None, end) == end  # nothing beyond what it may
        assert await read(log, end, await log.after(end, None, None)) == more


async def test_a_queue_is_read_with_all_it_is_given(url: str) -> None:
    early = await published(url, 2)
    await declared(url, "billing", "order.*")
    bound = await published(url, 3)
    async with QueueCraft(url) as qc:
        sent = [await qc.send("billing", {"n": 1})]
        await qc.publish("user.left", {})
    async with opened(url, "billing") as log:
        start = await log.at(EARLIEST)
        found = await deliveries(log, start, await log.at(LATEST))
        assert sorted(each.sent.id for each in found) == sorted([*bound, *sent])
        assert {each.queue for each in found} == {"billing"}
        # A topic that fits and was not there before is read from its beginning.
        end = await log.at(LATEST)
        others = await published(url, 4, "order.paid")
        for limits in (None, await log.at(LATEST)):
            assert await read(log, end, await log.after(end, None, limits)) == others
        assert await log.after(end, None, end) == end
    async with opened(url, "order.placed", event=True) as log:
        assert await read(log, {}, await log.at(LATEST)) == sorted([*early, *bound])


async def test_what_was_not_for_a_queue_is_not_read(url: str) -> None:
    await declared(url, "billing", "order.placed")
    first = await published(url, 3)
    async with opened(url, "billing") as log, QueueCraft(url) as qc:
        start = await log.at(EARLIEST)
        await qc.admin.unbind("billing", "order.placed")
        await published(url, 3)
        end = await log.after(start, None, None)
        assert await read(log, start, end) == first
        await qc.admin.bind("billing", "order.placed")
        second = await published(url, 3)
        anew = await log.after(end, None, None)
        last = await log.after(anew, None, None)
        assert sorted([*await read(log, end, anew), *await read(log, anew, last)]) == second


async def test_reading_is_noticed_by_no_group(url: str) -> None:
    await declared(url, "billing", "order.placed")
    await published(url, 3)
    admin = AdminClient(client(url))
    before = {each.group_id for each in admin.list_consumer_groups().result(PATIENCE).valid}
    async with opened(url, "billing") as log:
        assert len(await read(log, await log.at(EARLIEST), await log.at(LATEST))) == 3
    after = {each.group_id for each in admin.list_consumer_groups().result(PATIENCE).valid}
    assert after <= before
    async with QueueCraft(url) as qc:
        assert (await qc.admin.inspect("billing")).ready == 3


async def test_each_try_is_read_and_dead_letters_with_their_story(url: str) -> None:
    async with QueueCraft(url) as qc:
        billing = qc.worker("billing", retry=Retry(max_retries=1, initial_delay=0.01))

        @billing.on("order.placed")
        async def charge(order: dict[str, int]) -> None:
            raise ValueError("no money")

        await billing.start()
        await qc.publish("order.placed", {"n": 1}, headers={"tenant": "t1"})
        await until(lambda: qc.admin.inspect("billing"), lambda info: info.dead)
    async with opened(url, "billing.dlq") as log:
        (letter,) = await deliveries(log, await log.at(EARLIEST), await log.at(LATEST))
    async with opened(url, "billing") as log:
        tries = await deliveries(log, await log.at(EARLIEST), await log.at(LATEST))
    assert [each.sent.id for each in tries] == [letter.sent.id] * 2
    assert letter.sent.headers["x-error"] == "no money"
    assert letter.sent.headers["x-original-topic"] == topic(url, "order.placed")
    assert letter.sent.headers["tenant"] == "t1"
    assert letter.sent.headers["x-original-routing-key"] == "order.placed"


async def test_a_time_is_a_place(url: str) -> None:
    name = made(url, "order.placed", 1)
    for second in (1_700_000_000, 1_700_000_010, 1_700_000_020):
        produced(url, name, [b"{}"], timestamp=second * 1000)
    async with opened(url, "order.placed", event=True) as log:

        async def offset(seconds: float) -> object:
            where = datetime.fromtimestamp(seconds, UTC).isoformat()
            return (await log.at(where))[name]["0"]

        moments = (0, 1_700_000_000, 1_700_000_000.5, 1_700_000_010, 1_700_000_021)
        assert [await offset(each) for each in moments] == [0, 0, 1, 1, 3]
        assert await log.at("2023-11-14T22:13:30Z") == {name: {"0": 1}}
        found = await deliveries(log, await log.at(EARLIEST), await log.at(LATEST))
        assert [log.moment(each) for each in found] == [
            1_700_000_000,
            1_700_000_010,
            1_700_000_020,
        ]


async def test_records_of_others_are_read_as_workers_get_them(url: str) -> None:
    name = made(url, "clicks", 1)
    produced(url, name, [b'{"a": 1}', None], key=b"k", headers={"n": b"\xff", "text": "ä"})
    produced(url, name, [b"\x00"])
    async with opened(url, "clicks", event=True) as log:
        found = await deliveries(log, await log.at(EARLIEST), await log.at(LATEST))
    assert [each.sent.body for each in found] == [b'{"a": 1}', b"", b"\x00"]
    assert [each.sent.id for each in found] == [f"{name}-0-{n}" for n in range(3)]
    assert [each.sent.key for each in found] == ["k", "k", None]
    assert found[0].sent.headers == {"n": b"\xff", "text": "ä"}
    assert {each.sent.routing_key for each in found} == {"clicks"}


async def test_a_range_ends_where_offsets_have_no_records(url: str) -> None:
    name = made(url, "order.placed", 1)
    producer = Producer({**client(url), "transactional.id": name})
    producer.init_transactions(PATIENCE)

    def transaction(values: Sequence[bytes], *, commit: bool) -> None:
        producer.begin_transaction()
        for value in values:
            producer.produce(name, value)
        producer.flush(PATIENCE)
        (producer.commit_transaction if commit else producer.abort_transaction)(PATIENCE)

    transaction([b"1", b"2"], commit=True)  # and at 2 what ends it
    transaction([b"no"], commit=False)
    async with opened(url, "order.placed", event=True) as log:
        start = await log.at(EARLIEST)
        end = {name: {"0": 5}}
        await until(lambda: log.at(LATEST), lambda offset: offset == end)  # Kafka ends it later

        async def bodies(first: int, last: int) -> list[bytes]:
            found = await deliveries(log, {name: {"0": first}}, {name: {"0": last}})
            return [each.sent.body for each in found]

        assert await bodies(0, 5) == await bodies(0, 3) == [b"1", b"2"]  # also a second time
        assert [await bodies(n, n + 1) for n in range(5)] == [[b"1"], [b"2"], [], [], []]
        # What a transaction holds that is open is not there, and nothing after it is.
        producer.begin_transaction()
        producer.produce(name, b"3")
        producer.flush(PATIENCE)
        produced(url, name, [b"4"])
        assert await log.after(end, None, None) == end
        producer.commit_transaction(PATIENCE)
        last = {name: {"0": 8}}
        await until(lambda: log.after(end, None, None), lambda offset: offset == last)
        found = await deliveries(log, start, last)
        assert [each.sent.body for each in found] == [b"1", b"2", b"3", b"4"]


async def test_records_that_were_deleted_unread_are_told(url: str) -> None:
    name = made(url, "order.placed", 1)
    produced(url, name, [b"%d" % n for n in range(6)])
    async with opened(url, "order.placed", event=True) as log:
        start = await log.at(EARLIEST)
        end = await log.after(start, 2, None)
        cut(url, name, 4)
        with pytest.raises(QueueError, match="'fail_on_data_loss', 'false'"):
            await deliveries(log, start, end)
        with pytest.raises(
            QueueError, match="those before 4 were deleted, and only those before 2"
        ):
            await log.after(end, None, None)
        # Who begins now does not miss what was gone before.
        assert await log.at(EARLIEST) == {name: {"0": 4}}
    async with opened(url, "order.placed", event=True, strict=False) as log:
        assert await deliveries(log, start, end) == []
        found = await deliveries(log, end, await log.after(end, 1, None))
        assert [each.sent.body for each in found] == [b"4"]
        found = await deliveries(log, end, await log.after(end, None, None))
        assert [each.sent.body for each in found] == [b"4", b"5"]


async def test_a_topic_that_was_made_anew_is_told(url: str) -> None:
    name = made(url, "order.placed", 1)
    produced(url, name, [b"old"] * 5)
    async with (
        opened(url, "order.placed", event=True) as log,
        opened(url, "order.placed", event=True, strict=False) as lenient,
    ):
        start, end = await log.at(EARLIEST), await log.at(LATEST)
        half = {name: {"0": 3}}
        removed(url, name)
        with pytest.raises(QueueError, match="the topic is gone"):
            await log.after(start, None, None)
        assert await lenient.after(start, None, None) == {}
        made(url, "order.placed", 1)
        produced(url, name, [b"new"] * 2)
        with pytest.raises(QueueError, match="made anew and ends at 2"):
            await log.after(end, None, None)
        with pytest.raises(QueueError, match="only those before 3 had been read"):
            await deliveries(log, half, end)
        with pytest.raises(QueueError, match="made anew and ends at 2, and only those before 5"):
            await deliveries(log, start, end)
        assert await deliveries(lenient, half, end) == []
        anew = await lenient.after(end, None, None)
        assert anew == {}
        found = await deliveries(lenient, anew, await lenient.after(anew, None, None))
        assert [each.sent.body for each in found] == [b"new", b"new"]


async def test_a_topic_that_is_gone_is_told(url: str) -> None:
    await declared(url, "billing", "order.placed")
    await published(url, 3)
    async with opened(url, "billing") as log:
        start, end = await log.at(EARLIEST), await log.at(LATEST)
    removed(url, topic(url, "order.placed"))
    async with opened(url, "billing") as log:
        with pytest.raises(QueueError, match="the topic is gone"):
            await deliveries(log, start, end)
    async with opened(url, "billing", strict=False) as log:
        assert await deliveries(log, start, end) == []
        assert await deliveries(log, {}, end) == []  # nor as one that was new
        assert topic(url, "order.placed") not in await log.after(end, None, None)


async def test_a_partition_that_is_added_is_read(url: str) -> None:
    name = made(url, "order.placed", 1)
    produced(url, name, [b"1"])
    async with opened(url, "order.placed", event=True) as log:
        end = await log.at(LATEST)
        admin = AdminClient(client(url))
        admin.create_partitions([NewPartitions(name, 2)])[name].result(PATIENCE)
        producer = Producer(client(url))
        producer.produce(name, b"2", partition=1)
        assert producer.flush(PATIENCE) == 0
        more = {name: {"0": 1, "1": 1}}
        await until(lambda: log.after(end, None, None), lambda offset: offset == more)
        found = await deliveries(log, end, more)
        assert [each.sent.body for each in found] == [b"2"]


@pytest.mark.faults
async def test_a_broker_that_dies_while_reading_is_waited_for(
    kafka: Kafka, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 5)
    await declared(url, "billing", "order.placed")
    ids = await published(url, 200)
    async with opened(url, "order.placed", event=True) as log:
        start, end = await log.at(EARLIEST), await log.at(LATEST)
        kafka.kill()
        starting = asyncio.create_task(asyncio.to_thread(kafka.start))
        found = await read(log, start, end)
        await starting
    assert found == ids


async def test_silence_is_a_lost_connection(
    kafka: Kafka, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.5)
    monkeypatch.setattr(module, "WAIT", 0.2)
    await declared(url, "billing", "order.placed")
    await published(url, 5)
    async with opened(url, "order.placed", event=True) as log:
        start, end = await log.at(EARLIEST), await log.at(LATEST)
        kafka.freeze()
        try:
            with pytest.raises(ConnectionLost, match="no records came within"):
                await read(log, start, end)
        finally:
            kafka.thaw()


async def test_what_is_not_there_is_refused(url: str) -> None:
    async def message(name: str, **options: Any) -> str:
        with pytest.raises(QueueError) as caught:
            async with opened(url, name, **options):
                pass
        return str(caught.value)

    assert "there is no queue 'billing'" in await message("billing")  # nor anything else
    await declared(url, "billing", "order.placed")
    assert "there is no queue 'biling'" in await message("biling")
    assert ".option('event', 'order.placed')" in await message("order.placed")
    assert "no topic of the event 'order.paced'" in await message("order.paced", event=True)


@pytest.mark.parametrize(
    "where", ["soon", "2026-13-01", "{", '{"a": 5}', '{"a": {"x": 5}}', "1767225600000-0"]
)
async def test_a_place_that_is_none_is_refused(where: str, url: str) -> None:
    made(url, "order.placed", 1)
    async with opened(url, "order.placed", event=True) as log:
        with pytest.raises(ConfigError, match="is no place in topics of Kafka"):
            await log.at(where)


async def test_offsets_name_every_partition(url: str) -> None:
    name = made(url, "order.placed", 2)
    produced(url, name, [b"1", b"2"])
    async with opened(url, "order.placed", event=True) as log:
        assert await log.at(f'{{"{name}": {{"0": -1, "1": -2}}}}') == {name: {"0": 2, "1": 0}}
        for wrong in ('{"0": 1}', '{"0": 1, "1": -3}', '{"0": 1, "1": 1}'):
            with pytest.raises(ConfigError, match="has to name each partition there is"):
                await log.at(f'{{"{name}": {wrong}}}')
        with pytest.raises(ConfigError, match="in no zone; say which: 2026-01-31T08:00Z is in UTC"):
            await log.at("2026-01-31T08:00")


async def test_a_log_that_is_closed_says_so(url: str) -> None:
    made(url, "order.placed", 1)
    async with opened(url, "order.placed", event=True) as log:
        pass
    with pytest.raises(ConnectionLost, match="open it first"):
        await log.at(LATEST)
    await log.open()  # again
    assert await log.at(LATEST)
    await log.close()


async def test_a_wrong_password_is_told(kafka: Kafka) -> None:
    wrong = kafka.sasl_url.replace("@", "x@")
    log = log_of(Settings(url=wrong, timeout=2), "billing")
    with pytest.raises(ConnectionLost, match="check user and password"):
        await log.open()
    await log.close()


async def test_nobody_there_is_a_lost_connection() -> None:
    log = log_of(Settings(url="kafka://127.0.0.1:1", timeout=0.5), "billing")
    with pytest.raises(ConnectionLost):
        await log.open()
    await log.close()


async def test_an_encrypted_place_with_a_password_is_read(kafka: Kafka, url: str) -> None:
    made(url, "order.placed", 1)
    secure = f"{kafka.over_tls(kafka.over_sasl(url))}&cafile={kafka.ca_file}"
    async with opened(secure, "order.placed", event=True) as log:
        assert await log.at(LATEST)


def test_redis_has_no_events_by_themselves() -> None:
    with pytest.raises(UnsupportedFeature, match="keeps events only in the queues"):
        log_of(Settings(url="redis://cache/0?mode=stream"), "order.placed", event=True)


def test_without_the_client_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    for name in ("kafka", "topics"):
        monkeypatch.delitem(sys.modules, f"queuecraft.pipeline.source.{name}")
    with pytest.raises(ConfigError, match=r"pip install 'queuecraft\[kafka\]'"):
        log_of(Settings(url="kafka://broker"), "billing")
