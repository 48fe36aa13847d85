"""From a publish to the report on it, on real brokers: what the lake tells is what was done."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pytest

from queuecraft import Event, Journal, Message, QueueCraft, Retry
from queuecraft.pipeline.capture import capture
from queuecraft.pipeline.jobs.ingest import ingest
from queuecraft.pipeline.jobs.tables import parquet_files
from queuecraft.pipeline.jobs.triage import triage
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.report.figures import Counts
from queuecraft.pipeline.report.reading import read_figures
from tests.pipeline.segments import files
from tests.pipeline.small import for_small_data

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Order:
    n: int
    total: float


ORDERS: Final = [Order(n, n + 0.5) for n in range(200)]
LATE: Final = {n for n in range(200) if n % 10 == 3}  # fail once
UNPAID: Final = {n for n in range(200) if n % 40 == 7}  # fail always, for one reason
UNKNOWN: Final = {n for n in range(200) if n % 25 == 11}  # or for another
RETRIED: Final = LATE | UNPAID | UNKNOWN
DEAD: Final = UNPAID | UNKNOWN
order_placed = Event("order.placed", Order)


async def test_the_embedded_queue(spark: SparkSession, tmp_path: Path) -> None:
    url = f"local://{tmp_path / 'queue.db'}"
    await _lake_tells_what_was_done(spark, url, tmp_path)
    await _lake_tells_of_second_lives(spark, url, tmp_path)


@pytest.mark.faults
@pytest.mark.timeout(180)
async def test_second_lives_on_brokers(
    spark: SparkSession, rabbitmq_url: str, redis_url: str, tmp_path: Path
) -> None:
    for url in (rabbitmq_url, f"{redis_url}&mode=stream"):
        folder = tmp_path / url.partition(":")[0]
        await _work(url, Lake.at(folder / "lake"))
        ingest(spark, Lake.at(folder / "lake"))
        await _lake_tells_of_second_lives(spark, url, folder)


@pytest.mark.faults
async def test_rabbitmq(spark: SparkSession, rabbitmq_url: str, tmp_path: Path) -> None:
    await _lake_tells_what_was_done(spark, rabbitmq_url, tmp_path)


@pytest.mark.faults
async def test_redis(spark: SparkSession, redis_url: str, tmp_path: Path) -> None:
    await _lake_tells_what_was_done(spark, f"{redis_url}&mode=stream", tmp_path)


async def _lake_tells_what_was_done(spark: SparkSession, url: str, folder: Path) -> None:
    lake = Lake.at(folder / "lake")
    ids = await _work(url, lake)
    with for_small_data(spark):
        _tables_are_whole(spark, lake, ids)
        _figures_are_right(spark, lake)
        _triage_is_right(spark, lake, ids)


async def _lake_tells_of_second_lives(spark: SparkSession, url: str, folder: Path) -> None:
    lake = Lake.at(folder / "lake")
    await _redrive(url, lake)
    with for_small_data(spark):
        _second_lives_are_told(spark, lake)


async def _work(url: str, lake: Lake) -> list[str]:
    """Publish, handle and capture; the ids of the orders."""
    calls: Counter[str] = Counter()
    changed = asyncio.Event()
    journal = Journal(lake.root, payload="full", service="shop")
    silent = logging.getLogger("tests.end_to_end")
    silent.setLevel(logging.CRITICAL + 1)  # failures are what this is about
    async with QueueCraft(url, journal=journal, logger=silent) as qc:
        billing = qc.worker(
            "billing", retry=Retry(max_retries=1, initial_delay=0.05), concurrency=4
        )
        audit = qc.worker("audit")

        @billing.on(order_placed)
        async def charge(order: Order, message: Message) -> None:
            calls["billing"] += 1
            changed.set()
            if order.n in UNPAID:
                raise ValueError(f"card {order.n} has no money")
            if order.n in UNKNOWN:
                raise LookupError(f"customer {order.n} is unknown")
            if order.n in LATE and message.attempt == 1:
                raise TimeoutError("the bank is late")

        @audit.on(order_placed)
        async def note(order: Order) -> None:
            calls["audit"] += 1
            changed.set()

        await qc.admin.declare("tap", "order.*", dead_letters=False)
        await billing.start()
        await audit.start()
        ids = list(await qc.publish_many(order_placed, ORDERS))
        while calls != {"billing": len(ORDERS) + len(RETRIED), "audit": len(ORDERS)}:
            await changed.wait()
            changed.clear()
        captured = await capture(qc, "tap", lake, rows=150, once=True)
    assert (captured.rows, captured.segments) == (len(ORDERS), 2)
    assert qc.get_metrics().journal_dropped == 0
    return ids


def _tables_are_whole(spark: SparkSession, lake: Lake, ids: list[str]) -> None:
    done = ingest(spark, lake)
    rows = 4 * len(ORDERS) + len(RETRIED)  # published, captured, billed and audited
    assert (done.rows, done.quarantined) == (rows, 0)
    silver = [str(each) for each in parquet_files(lake.tables / "events")]
    asked = "SELECT kind, queue, outcome, count(*), count(DISTINCT message_id) FROM {} GROUP BY ALL"
    found = _ask(asked, silver)
    assert found == _ask(asked, _segments(lake))
    assert set(found) == {
        ("published", None, None, 200, 200),
        ("captured", "tap", None, 200, 200),
        ("delivered", "audit", "succeeded", 200, 200),
        ("delivered", "billing", "succeeded", 200 - len(DEAD), 200 - len(DEAD)),
        ("delivered", "billing", "retried", len(RETRIED), len(RETRIED)),
        ("delivered", "billing", "dead-lettered", len(DEAD), len(DEAD)),
    }
    # An order is the same when it is published, delivered, tried again and captured.
    payloads = _ask("SELECT DISTINCT message_id, payload FROM {}", silver)
    assert {id: json.loads(payload) for id, payload in payloads} == {
        id: {"n": order.n, "total": order.total} for id, order in zip(ids, ORDERS, strict=True)
    }
    assert len(payloads) == len(ORDERS)
    again = ingest(spark, lake)
    assert (again.segments, again.rows) == (0, 0)


def _figures_are_right(spark: SparkSession, lake: Lake) -> None:
    figures = read_figures(spark, lake)
    queues = {each.queue: each for each in figures.queues}
    size = dict(
        _ask(
            "SELECT coalesce(queue, ''), sum(size) FROM {} WHERE kind <> 'captured' GROUP BY ALL",
            _segments(lake),
        )
    )
    billed = Counts(
        published=200,
        delivered=200 + len(RETRIED),
        succeeded=200 - len(DEAD),
        retried=len(RETRIED),
        dead=len(DEAD),
        bytes=size["billing"],
    )
    audited = Counts(published=200, delivered=200, succeeded=200, bytes=size["audit"])
    assert {name: each.counts for name, each in queues.items()} == {
        "billing": billed,
        "audit": audited,
    }
    assert figures.counts == Counts(
        published=200,  # once, though two queues had it
        delivered=billed.delivered + audited.delivered,
        succeeded=billed.succeeded + audited.succeeded,
        retried=billed.retried,
        dead=billed.dead,
        bytes=sum(size.values()),
    )
    assert figures.counts.failure_rate == (len(RETRIED) + len(DEAD)) / (400 + len(RETRIED))
    assert (figures.unseen, figures.quarantine) == (0, ())
    assert {(each.queue, each.arrived, each.left, each.backlog) for each in figures.growth} == {
        ("billing", 200, 200, 0),
        ("audit", 200, 200, 0),
    }
    assert figures.drift.events == 1
    assert figures.axis is not None
    assert sum((each for each in figures.series.counts), Counts()) == figures.counts

    for queue, *percentiles in _ask(
        """
        WITH lives AS (
            SELECT queue, (max(epoch_us("at")) - min(epoch_us(published_at))) / 1e6 AS latency
            FROM {} WHERE kind = 'delivered' GROUP BY queue, message_id
        )
        SELECT queue, quantile_disc(latency, 0.5), quantile_disc(latency, 0.95) FROM lives
        GROUP BY queue
        """,
        _segments(lake),
    ):
        # Brokers may keep milliseconds of what the publisher knows to the microsecond.
        latency = queues[queue].speed.latency
        assert (latency.p50, latency.p95) == pytest.approx(percentiles, abs=0.0021)


def _triage_is_right(spark: SparkSession, lake: Lake, ids: list[str]) -> None:
    found = triage(spark, lake)
    assert found.groups == len(found.troubles) == 2
    by_error = {each.group.error_type: each for each in found.troubles}
    for error, orders in (("ValueError", UNPAID), ("LookupError", UNKNOWN)):
        trouble = by_error[error]
        group, example = trouble.group, trouble.example
        assert (group.queue, group.event, group.count) == ("billing", "order.placed", len(orders))
        assert (trouble.recovered, trouble.open) == (0, len(orders))
        dead = {ids[n]: n for n in orders}
        assert set(group.message_ids) <= dead.keys()
        assert len(group.message_ids) == min(5, len(orders))
        assert example is not None
        assert example.payload is not None
        assert json.loads(example.payload)["n"] == dead[example.message_id]
    assert {
        (g.fingerprint, g.count, _micros(g.first_seen), _micros(g.last_seen))
        for g in (each.group for each in found.troubles)
    } == set(
        _ask(
            """
            SELECT fingerprint, count(DISTINCT message_id), min(epoch_us("at")), max(epoch_us("at"))
            FROM {} WHERE outcome = 'dead-lettered' GROUP BY fingerprint
            """,
            _segments(lake),
        )
    )


async def _redrive(url: str, lake: Lake) -> None:
    """The bank and the customers are back."""
    handled: set[int] = set()
    done = asyncio.Event()
    async with QueueCraft(url, journal=Journal(lake.root, payload="full", service="shop")) as qc:
        billing = qc.worker("billing")

        @billing.on(order_placed)
        async def charge(order: Order) -> None:
            handled.add(order.n)
            if handled == DEAD:
                done.set()

        await billing.start()
        assert (await qc.dead_letters.redrive("billing")).moved == len(DEAD)
        await done.wait()


def _second_lives_are_told(spark: SparkSession, lake: Lake) -> None:
    before = triage(spark, lake)
    assert sum(each.open for each in before.troubles) == len(DEAD)
    ingest(spark, lake)
    after = triage(spark, lake)
    assert {each.group.error_type: (each.recovered, each.open) for each in after.troubles} == {
        "ValueError": (len(UNPAID), 0),
        "LookupError": (len(UNKNOWN), 0),
    }
    (billing,) = [each for each in read_figures(spark, lake).queues if each.queue == "billing"]
    assert (billing.counts.dead, billing.counts.succeeded) == (len(DEAD), 200)


def _segments(lake: Lake) -> list[str]:
    return [str(each) for each in files(lake)]


def _ask(query: str, parquet: list[str]) -> list[tuple[Any, ...]]:
    """What another engine says of these files."""
    with duckdb.connect() as connection:
        rows = connection.execute(query.format("read_parquet($1)"), [parquet]).fetchall()
    return sorted(rows, key=repr)


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1e6)
