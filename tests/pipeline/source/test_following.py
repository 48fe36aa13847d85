from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from queuecraft.model.errors import ConfigError
from queuecraft.pipeline.source.following import FollowingReader
from queuecraft.pipeline.source.place import Place
from queuecraft.pipeline.source.source import QueueCraftSource
from tests.brokers.redis import call
from tests.pipeline.source.queues import declared, handled, published

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Shop = Callable[..., str]


@pytest.fixture
def url(redis_url: str) -> str:
    url = f"{redis_url}&mode=stream&retain=1000"
    declared(url, "billing", "order.*")
    return url


def reader(url: str, monkeypatch: pytest.MonkeyPatch, **options: Any) -> FollowingReader:
    monkeypatch.setenv("QUEUECRAFT_CONNECTION_SHOP_URL", url)
    given: dict[str, Any] = {"starting": "earliest", "rows": None, "strict": True} | options
    return FollowingReader(Place("shop", "billing"), ("message_id", "at"), **given)


def ids(following: FollowingReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    return [
        id
        for partition in following.partitions(start, end)
        for batch in following.read(partition)
        for id in batch.column("message_id").to_pylist()
    ]


def test_a_query_that_is_started_again_misses_nothing_and_repeats_nothing(
    source: SparkSession, shop: Shop, url: str, tmp_path: Path
) -> None:
    shop(url)

    def run() -> None:
        rows = source.readStream.format("queuecraft").option("connection", "shop")
        table = rows.option("stream", "billing").option("max_rows", 6).load()
        writer = table.select("message_id", "queue", "payload").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()

    def found() -> list[str]:
        table = source.read.parquet(str(tmp_path / "out"))
        return sorted(row.message_id for row in table.collect())

    first = published(url, "order.placed", range(10))
    run()
    assert found() == sorted(first)
    handled(url, "billing", 10)  # by a worker, as if nothing were
    second = published(url, "order.placed", range(5))
    newest = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
    newest.unlink()  # as if it had died before the last batch was done
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    run()
    assert found() == sorted([*first, *second])


def test_a_stream_is_a_table_of_all_that_it_keeps(
    source: SparkSession, shop: Shop, url: str
) -> None:
    shop(url)
    published(url, "order.placed", range(3))
    handled(url, "billing", 3)
    published(url, "order.placed", range(2))
    rows = source.read.format("queuecraft").option("connection", "shop")
    table = rows.option("stream", "billing").load()
    assert [bytes(row.payload) for row in table.collect()] == [b"0", b"1", b"2", b"0", b"1"]
    waiting = source.read.format("queuecraft").option("connection", "shop")
    assert waiting.option("queue", "billing").load().count() == 2
    nothing = rows.option("stream", "billing").option("starting", "latest").load()
    assert nothing.count() == 0


def test_a_batch_has_no_more_rows_than_it_may(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    following = reader(url, monkeypatch, rows=3)
    assert following.getDefaultReadLimit() == ReadMaxRows(3)
    sent = published(url, "order.placed", range(5))
    start = following.initialOffset()
    middle = following.latestOffset(start, ReadMaxRows(3))
    assert ids(following, start, middle) == sent[:3]
    end = following.latestOffset(middle, ReadAllAvailable())
    assert ids(following, middle, end) == sent[3:]
    assert following.latestOffset(end, ReadMaxRows(3)) == end
    assert following.partitions(end, end) == []
    assert following.reportLatestOffset() == end
    following.stop()


def test_what_comes_after_the_start_is_for_the_next_run(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    following = reader(url, monkeypatch)
    assert following.getDefaultReadLimit() == ReadAllAvailable()
    sent = published(url, "order.placed", range(2))
    start = following.initialOffset()
    following.prepareForTriggerAvailableNow()
    published(url, "order.placed", range(2))
    end = following.latestOffset(start, ReadAllAvailable())
    assert ids(following, start, end) == sent
    assert following.latestOffset(end, ReadAllAvailable()) == end
    following.stop()


def test_rows_are_the_same_when_they_are_read_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(url, "order.placed", range(3))
    following = reader(url, monkeypatch)
    start = following.initialOffset()
    (partition,) = following.partitions(start, following.latestOffset(start, ReadAllAvailable()))
    first, second = list(following.read(partition)), list(following.read(partition))
    assert first[0].equals(second[0])
    following.stop()


def test_a_connection_that_was_lost_between_two_batches_is_opened_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    following = reader(url, monkeypatch, starting="latest")
    start = following.initialOffset()
    call(url, "CLIENT", "KILL", "TYPE", "normal")
    sent = published(url, "order.placed", range(2))
    end = following.latestOffset(start, ReadAllAvailable())
    assert ids(following, start, end) == sent
    following.stop()


def test_a_queue_that_keeps_nothing_cannot_be_followed(
    source: SparkSession, shop: Shop, file_url: str
) -> None:
    shop(file_url)
    rows = source.readStream.format("queuecraft").option("connection", "shop")
    query = rows.option("queue", "billing").load().writeStream.format("noop").start()
    with pytest.raises(PySparkException, match="local:// keeps no messages that were read"):
        query.awaitTermination()


def test_a_lake_is_followed_by_sparks_own_means() -> None:
    source = QueueCraftSource({"lake": "/data/lake"})
    with pytest.raises(ConfigError, match=r"pathGlobFilter.*parquet\('lake/segments'\)"):
        source.streamReader(source.schema())
