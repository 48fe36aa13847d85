from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import InputPartition

from queuecraft import QueueCraft
from queuecraft.model.errors import QueueError, UnsupportedFeature
from queuecraft.pipeline.source import snapshot
from queuecraft.pipeline.source.place import Place
from queuecraft.pipeline.source.snapshot import SnapshotReader
from tests.pipeline.source.queues import declared, published, waiting
from tests.redis.place import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Shop = Callable[..., str]
WHOLE = InputPartition(None)


def test_a_queue_is_a_table_of_what_waits_in_it(
    source: SparkSession, shop: Shop, file_url: str
) -> None:
    url = shop(file_url)
    declared(url, "billing", "order.*")
    ids = published(url, "order.placed", [{"n": n} for n in range(3)], key="c-1", headers={"a": 1})
    reader = source.read.format("queuecraft").option("connection", "shop")
    rows = reader.option("queue", "billing").load().collect()
    assert [row.message_id for row in rows] == ids
    assert {(row.kind, row.queue, row.event, row.key) for row in rows} == {
        ("captured", "billing", "order.placed", "c-1")
    }
    assert [bytes(row.payload) for row in rows] == [b'{"n":0}', b'{"n":1}', b'{"n":2}']
    assert [each.id for each in waiting(url, "billing")] == ids  # and they still wait
    assert reader.option("limit", 2).option("queue", "billing").load().count() == 2


def test_a_queue_that_is_not_there_is_told_with_those_that_are(
    source: SparkSession, shop: Shop, file_url: str
) -> None:
    declared(shop(file_url), "billing")
    reader = source.read.format("queuecraft").option("connection", "shop")
    with pytest.raises(PySparkException, match="there is no queue 'biling'; did you mean"):
        reader.option("queue", "biling").load().collect()


def test_a_part_of_a_queue_is_not_taken_for_the_whole(
    file_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUECRAFT_URL", file_url)
    monkeypatch.setattr(snapshot, "MOST", 2)
    declared(file_url, "billing", "order.*")
    published(file_url, "order.placed", range(3))
    place = Place("default", "billing", local=True)
    with pytest.raises(QueueError, match="3 messages wait, and a snapshot looks at no more than 2"):
        list(SnapshotReader(place, ("kind",), limit=None, force=False).read(WHOLE))
    (rows,) = SnapshotReader(place, ("kind",), limit=5, force=False).read(WHOLE)
    assert rows.num_rows == 3


def test_an_empty_queue_is_an_empty_table(file_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUECRAFT_URL", file_url)
    declared(file_url, "billing")
    place = Place("default", "billing", local=True)
    assert list(SnapshotReader(place, ("kind",), limit=None, force=False).read(WHOLE)) == []


@pytest.mark.faults
def test_messages_that_would_be_marked_are_not_looked_at_under_their_worker(
    rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUECRAFT_CONNECTION_SHOP_URL", rabbitmq_url)

    def rows(force: bool, queue: str = "billing") -> int:
        reader = SnapshotReader(Place("shop", queue), ("kind",), limit=None, force=force)
        return sum(batch.num_rows for batch in reader.read(WHOLE))

    async def main() -> None:
        async with QueueCraft(rabbitmq_url) as qc:
            worker = qc.worker("billing")
            worker.on("order.*", print)
            await worker.start()

            async def consumed() -> bool:
                return (await qc.admin.inspect("billing")).consumers == 1

            await eventually(consumed)
            with pytest.raises(UnsupportedFeature, match=r"insist with .option\('force', 'true'\)"):
                await asyncio.to_thread(rows, force=False)
            assert await asyncio.to_thread(rows, force=True) == 0
            assert await asyncio.to_thread(rows, force=False, queue="billing.dlq") == 0

    asyncio.run(main())
    published(rabbitmq_url, "order.placed", range(3))
    assert rows(force=False) == 3


@pytest.mark.parametrize("mode", ["list", "stream"])
def test_a_redis_queue_is_looked_at_as_it_stands(
    redis_url: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{redis_url}&mode={mode}"
    monkeypatch.setenv("QUEUECRAFT_CONNECTION_SHOP_URL", url)
    declared(url, "billing", "order.*")
    ids = published(url, "order.placed", range(3))
    reader = SnapshotReader(Place("shop", "billing"), ("message_id",), limit=None, force=False)
    (batch,) = reader.read(WHOLE)
    assert batch.column("message_id").to_pylist() == ids
