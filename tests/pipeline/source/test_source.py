from __future__ import annotations

import logging

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from queuecraft.model.errors import ConfigError, PublishError, QueueError
from queuecraft.pipeline.schemas import SEGMENTS
from queuecraft.pipeline.source.following import FollowingReader, LogReader
from queuecraft.pipeline.source.lake import FilteringLakeReader, LakeReader
from queuecraft.pipeline.source.place import Place
from queuecraft.pipeline.source.site import Site
from queuecraft.pipeline.source.snapshot import SnapshotReader
from queuecraft.pipeline.source.source import QueueCraftSource, source_for
from queuecraft.pipeline.source.writers import QueueStreamWriter, QueueWriter, Written
from tests.pipeline.source.queues import declared, published, waiting

PAYLOAD = StructType().add("payload", "string")


def source(site: Site | None = None, **options: str) -> QueueCraftSource:
    return source_for(site or Site())(options)


def test_options_say_what_is_read() -> None:
    lake = source(path="/data/lake").reader(SEGMENTS.spark)
    assert isinstance(lake, LakeReader)
    assert lake.columns == SEGMENTS.names
    shop = Place("shop", "billing", local=True)
    here = Site(local=True)
    queue = source(here, connection="shop", queue="billing", limit="5").reader(SEGMENTS.spark)
    assert isinstance(queue, SnapshotReader)
    assert (queue.place, queue.limit, queue.force) == (shop, 5, False)
    log = source(here, connection="shop", stream="billing", starting="5-0").reader(SEGMENTS.spark)
    assert isinstance(log, LogReader)
    assert (log.place, log.starting, log.ending) == (shop, "5-0", "latest")
    follower = source(stream="billing", fail_on_data_loss="no").streamReader(SEGMENTS.spark)
    assert isinstance(follower, FollowingReader)
    assert (follower.place.connection, follower.strict) == ("default", False)


def test_filters_are_taken_only_where_spark_hands_them_over() -> None:
    taken = source(Site(filters=True), lake="/data/lake").reader(SEGMENTS.spark)
    refused = source(Site(filters=False), lake="/data/lake").reader(SEGMENTS.spark)
    assert (type(taken), type(refused)) == (FilteringLakeReader, LakeReader)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "say one of the options 'lake', 'path', 'queue', 'stream'"),
        ({"lake": "/a", "queue": "b"}, "'lake' and 'queue' are both there"),
        ({"lake": "/a", "limit": "5"}, "no option 'limit' here"),
        ({"queue": "a", "starting": "earliest"}, "no option 'starting' here"),
    ],
)
def test_a_read_that_cannot_be_meant_is_refused(options: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        source_for(Site())(options).reader(SEGMENTS.spark)


def test_what_was_written_is_counted(
    file_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("QUEUECRAFT_CONNECTION_SHOP_URL", file_url)
    declared(file_url, "billing")
    here = Site(local=True, slots=1)
    writer = source(here, connection="shop", queue="billing", rate="1000").writer(PAYLOAD, False)
    assert isinstance(writer, QueueWriter)
    done = writer.write(iter([pa.record_batch([pa.array(["1", "22"])], names=["payload"])]))
    assert done == Written(partition=0, messages=2, bytes=3)
    assert [each.payload for each in waiting(file_url, "billing")] == [1, 22]
    with caplog.at_level(logging.INFO, "queuecraft"):
        writer.commit([done, Written(1, 3, 6)])
        writer.abort([done, None])
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "5 messages written to 'billing' (9 bytes, 2 tasks)",
        "2 messages of the tasks that did not fail written to 'billing' (3 bytes, 1 tasks)",
    ]


def test_what_the_broker_refuses_is_named_with_what_was_sent_before(
    file_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUECRAFT_CONNECTION_SHOP_URL", file_url)
    declared(file_url, "billing", "order.placed")
    table = StructType().add("payload", "string").add("event", "string").add("message_id", "string")
    writer = source(Site(local=True), connection="shop").writer(table, False)
    names = [f"m-{n}" for n in range(600)]
    events = ["order.placed"] * 550 + ["order.lost"] + ["order.placed"] * 49
    rows = pa.record_batch([["1"] * 600, events, names], names=["payload", "event", "message_id"])
    with pytest.raises(PublishError, match=r"'order.lost'.* had written 550 before it") as caught:
        writer.write(iter([rows]))
    assert (caught.value.message_id, caught.value.outcome) == ("m-550", "rejected")
    assert len(waiting(file_url, "billing")) >= 550


def test_a_streaming_write_has_to_know_its_batch(caplog: pytest.LogCaptureFixture) -> None:
    writer = source(event="order.placed").streamWriter(PAYLOAD, False)
    assert isinstance(writer, QueueStreamWriter)
    with pytest.raises(QueueError, match="does not say which batch"):
        writer.write(iter([]))
    with caplog.at_level(logging.INFO, "queuecraft"):
        writer.commit([Written(0, 1, 2)], 7)
        writer.abort([None], 8)
    assert [record.getMessage()[:17] for record in caplog.records] == [
        "batch 7: 1 messag",
        "batch 8: 0 messag",
    ]


def test_a_log_is_read_as_it_was_planned(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"{redis_url}&mode=stream"
    monkeypatch.setenv("QUEUECRAFT_CONNECTION_SHOP_URL", url)
    declared(url, "billing", "order.*")
    reader = source(connection="shop", stream="billing").reader(StructType().add("size", "long"))
    assert isinstance(reader, LogReader)
    assert reader.partitions() == []
    published(url, "order.placed", [1, 22])
    (partition,) = reader.partitions()
    published(url, "order.placed", [333])
    (rows,) = reader.read(partition)
    assert rows.column("size").to_pylist() == [1, 2]
