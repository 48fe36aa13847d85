"""The programs about Spark, and Spark on Kafka, that read queues and write to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from queuecraft import NoRetry, QueueCraft
from queuecraft.facts import MessageDeadLettered
from queuecraft.pipeline.lake import Lake
from tests.docs.blocks import changed, executed, left_to
from tests.pipeline.rows import delivered, published, write_rows
from tests.pipeline.small import for_small_data
from tests.pipeline.source import queues
from tests.pipeline.source.conftest import SHOP

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Shop = Callable[..., str]


@pytest.fixture(autouse=True)
def connected(source: SparkSession, shop_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs call `register` themselves, and find the variables of those before them."""
    monkeypatch.setenv(SHOP, str(shop_file))


async def failed(url: str, *errors: Exception) -> list[str]:
    """The ids of messages that have become dead letters of `billing` by these errors."""
    dead = asyncio.Semaphore(0)
    left = iter(errors)
    qc = QueueCraft(url, retry=NoRetry())
    qc.observe(MessageDeadLettered, lambda _: dead.release())
    billing = qc.worker("billing", concurrency=1)

    @billing.on("order.placed")
    async def charge(order: object) -> None:
        raise next(left)

    async with qc:
        await billing.start()
        ids = [await qc.publish("order.placed", {"n": n}) for n in range(len(errors))]
        for _ in errors:
            await dead.acquire()
    return ids


def test_a_lake_and_dead_letters_are_read_and_what_is_repaired_is_sent_back(
    source: SparkSession,
    shop: Shop,
    file_url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tables, _ = left_to(__file__, "docs/spark.md")
    write_rows(Lake.at(tmp_path / "lake"), [published("m-1"), delivered("m-1")])
    shop(file_url)
    late, _ = asyncio.run(failed(file_url, TimeoutError("the bank"), ValueError("no money")))
    capsys.readouterr()
    with for_small_data(source):
        executed(changed(tables, {'"./lake"': f'"{tmp_path}/lake"'}))
    shown = "".join(capsys.readouterr().out.split())
    for row in ("|delivered|billing|1|", "|published|NULL|1|", "|TimeoutError|1|"):
        assert row in shown
    assert [each.id for each in queues.waiting(file_url, "billing")] == [late]


def test_a_queue_is_followed_into_files(
    source: SparkSession, shop: Shop, redis_url: str, tmp_path: Path
) -> None:
    _, following = left_to(__file__, "docs/spark.md")
    url = shop(f"{redis_url}&mode=stream&retain=1000")
    queues.declared(url, "billing", "order.*")
    ids = queues.published(url, "order.placed", range(10))
    with for_small_data(source):
        executed(changed(following, {'"./orders': f'"{tmp_path}/orders'}))
    rows = source.read.parquet(str(tmp_path / "orders")).collect()
    assert sorted(row["message_id"] for row in rows) == sorted(ids)


def test_orders_on_kafka_are_counted_by_their_key(
    source: SparkSession, shop: Shop, kafka_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (counting,) = left_to(__file__, "docs/kafka.md")
    url = shop(kafka_url)
    queues.declared(url, "billing", "order.*")
    for key in ("o-1", "o-2", "o-1"):
        queues.published(url, "order.placed", [{}], key=key)
    capsys.readouterr()
    with for_small_data(source):
        executed(counting)
    shown = "".join(capsys.readouterr().out.split())
    assert "|o-1|2|" in shown
    assert "|o-2|1|" in shown
