"""Kafka's topics as tables of Spark's, once and as they grow, and tables into them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from tests.pipeline.source.queues import declared, handled, published, waiting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Shop = Callable[..., str]


@pytest.fixture
def url(kafka_url: str) -> str:
    url = f"{kafka_url}&partitions=2&refresh=0.05"
    declared(url, "billing", "order.*")
    return url


@pytest.mark.faults
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
    second = published(url, "order.paid", range(5))  # a topic that was not there before
    newest = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
    newest.unlink()  # as if it had died before the last batch was done
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    run()
    assert found() == sorted([*first, *second])


def test_an_event_is_a_table(source: SparkSession, shop: Shop, url: str) -> None:
    shop(url)
    first = published(url, "order.placed", range(3), key="k", headers={"tenant": "t1", "n": 5})

    def table(**options: str) -> DataFrame:
        rows = source.read.format("queuecraft").option("connection", "shop")
        return rows.option("event", "order.placed").options(**options).load()

    (row, *_) = rows = table().orderBy("payload").collect()
    assert [each.message_id for each in rows] == first
    assert (row.kind, row.queue, row.event, row.key) == ("captured", None, "order.placed", "k")
    assert (row.headers, json.loads(row.typed_headers)) == ({"tenant": "t1"}, {"n": 5})
    assert row.at >= row.published_at
    assert table(starting="latest").count() == 0
    later = published(url, "order.placed", range(2))
    last = max(each.at for each in rows).astimezone(UTC)
    since = (last + timedelta(milliseconds=1)).isoformat()
    assert {each.message_id for each in table(starting=since).collect()} == set(later)
    assert {each.message_id for each in table(ending=since).collect()} == set(first)


def test_tables_are_written_with_confirms(source: SparkSession, shop: Shop, url: str) -> None:
    shop(url)
    numbers = source.range(20).selectExpr("id AS n", "cast(id % 3 AS string) AS key")
    place = numbers.write.format("queuecraft").option("connection", "shop").mode("append")
    place.option("queue", "billing").save()
    event = numbers.write.format("queuecraft").option("connection", "shop").mode("append")
    event.option("event", "order.placed").save()
    found = waiting(url, "billing")
    assert sorted(each.payload["n"] for each in found) == sorted([*range(20)] * 2)
    assert {each.key for each in found} == {"0", "1", "2"}
    missing = numbers.write.format("queuecraft").option("connection", "shop").mode("append")
    with pytest.raises(PySparkException, match="there is no queue 'biling'"):
        missing.option("queue", "biling").save()
