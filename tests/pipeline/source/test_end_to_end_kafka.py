"""From a publish to the report on it, and back again from the dead letters, on Kafka."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from queuecraft import Event, Journal, Message, QueueCraft, Retry
from queuecraft.pipeline.jobs.ingest import ingest
from queuecraft.pipeline.jobs.triage import triage
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.report.reading import read_figures
from tests.pipeline.segments import rows
from tests.pipeline.small import for_small_data

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass
class Order:
    n: int


ORDERS: Final = [Order(n) for n in range(40)]
LATE: Final = {3, 13, 23}  # fail once
UNPAID: Final = {7, 17}  # fail always
order_placed = Event("order.placed", Order)


@pytest.mark.faults
async def test_the_lake_tells_what_was_done_and_mends_it(
    source: SparkSession, shop: Callable[..., str], kafka_url: str, tmp_path: Path
) -> None:
    url = shop(f"{kafka_url}&refresh=0.2")
    lake = Lake.at(tmp_path / "lake")
    ids = await _work(url, lake)
    _capture(url, lake)
    captured = Counter(each["message_id"] for each in rows(lake) if each["kind"] == "captured")
    assert captured == Counter(ids)

    def table(**options: str) -> DataFrame:
        return source.read.format("queuecraft").options(connection="shop", **options).load()

    with for_small_data(source):
        done = ingest(source, lake)
        assert (done.rows, done.quarantined) == (3 * len(ORDERS) + len(LATE | UNPAID), 0)
        (billing,) = read_figures(source, lake).queues
        counts = billing.counts
        assert (counts.published, counts.succeeded, counts.retried, counts.dead) == (
            len(ORDERS),
            len(ORDERS) - len(UNPAID),
            len(LATE | UNPAID),
            len(UNPAID),
        )
        (trouble,) = triage(source, lake).troubles
        assert (trouble.group.error_type, trouble.open) == ("ValueError", len(UNPAID))

        # What was handled is in the topics still.
        assert sorted(each.message_id for each in table(event="order.placed").collect()) == ids
        letters = table(stream="billing.dlq").where("error_type = 'ValueError'")
        mended = letters.write.format("queuecraft").options(connection="shop", queue="billing")
        mended.mode("append").save()
    assert await _handled(url, len(UNPAID)) == {id: n for n, id in enumerate(ids) if n in UNPAID}


async def _work(url: str, lake: Lake) -> list[str]:
    """Publish and handle; the ids of the orders, which are sorted."""
    calls = Counter[int]()
    expected = Counter({order.n: 2 if order.n in LATE | UNPAID else 1 for order in ORDERS})
    done = asyncio.Event()
    silent = logging.getLogger("tests.end_to_end")
    silent.setLevel(logging.CRITICAL + 1)  # failures are what this is about
    journal = Journal(lake.root, payload="full", service="shop")
    async with QueueCraft(url, journal=journal, logger=silent) as qc:
        billing = qc.worker(
            "billing", retry=Retry(max_retries=1, initial_delay=0.05), concurrency=4
        )

        @billing.on(order_placed)
        async def charge(order: Order, message: Message) -> None:
            calls[order.n] += 1
            if calls == expected:
                done.set()
            if order.n in UNPAID:
                raise ValueError(f"card {order.n} has no money")
            if order.n in LATE and message.attempt == 1:
                raise TimeoutError("the bank is late")

        await qc.admin.declare("tap", "order.*", dead_letters=False)
        await billing.start()
        ids = [f"order-{order.n:02}" for order in ORDERS]
        for id, order in zip(ids, ORDERS, strict=True):
            await qc.publish(order_placed, order, message_id=id)
        await done.wait()
    return ids


def _capture(url: str, lake: Lake) -> None:
    """As one does it in a shell."""
    command = ("lake", "capture", str(lake.root), "--queue", "tap", "--once", "--json")
    told = subprocess.run(
        [sys.executable, "-m", "queuecraft", *command],
        env=os.environ | {"QUEUECRAFT_URL": url},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(told.stdout)["rows"] == len(ORDERS)


async def _handled(url: str, count: int) -> dict[str, int]:
    """So many orders that a worker is given."""
    found: dict[str, int] = {}
    done = asyncio.Event()
    async with QueueCraft(url) as qc:
        billing = qc.worker("billing")

        @billing.on(order_placed)
        async def charge(order: Order, message: Message) -> None:
            found[message.id] = order.n
            if len(found) == count:
                done.set()

        await billing.start()
        await done.wait()
    return found
