"""Whoever reads the lake without us comes to the same numbers: DuckDB, over the same files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from queuecraft.pipeline.jobs.ingest import ingest
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.schemas import DEAD_LETTERS, GROWTH, LIFECYCLE, THROUGHPUT, Table
from tests.pipeline.rows import at, business, in_segments, published, table_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(180)  # on a busy machine Spark takes its time


class Duck:
    """The same lake, seen by another."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        for table in ("events", "lifecycle", "messages"):
            files = self._lake.tables / table / "**" / "*.parquet"
            query = query.replace(f"<{table}>", f"read_parquet('{files}', hive_partitioning=true)")
        query = query.replace("<segments>", f"read_parquet('{self._lake.segments}/*/*.parquet')")
        found: list[tuple[Any, ...]] = self._connection.execute(query).fetchall()
        return sorted(found, key=repr)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake.at(tmp_path_factory.mktemp("lake"))
    rows = business(150)
    in_segments(lake, [*rows, *rows[::9], published("m-1", at(1), replay_id="r-1")], 4)
    ingest(spark, lake)
    return lake


@pytest.fixture(scope="module")
def duck(lake: Lake) -> Duck:
    return Duck(lake)


def ours(lake: Lake, table: Table, *columns: str) -> list[tuple[Any, ...]]:
    found = [tuple(row[name] for name in columns) for row in table_rows(lake, table)]
    return sorted(found, key=repr)


def same(ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]) -> None:
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        for left, right in zip(mine, other, strict=True):
            if isinstance(left, float):
                assert left == pytest.approx(right), (mine, other)
            else:
                assert left == right, (mine, other)


def test_events_are_the_rows_of_segments_each_once(duck: Duck) -> None:
    key = "message_id, queue, kind, attempt, replay_id"
    assert duck.rows(f"SELECT {key} FROM <events>") == duck.rows(
        f"SELECT DISTINCT {key} FROM <segments>"
    )
    assert duck.rows("SELECT count(*) FROM <messages>") == duck.rows(
        "SELECT count(*) FROM <segments>"
    )


def test_throughput_is_what_duckdb_counts(lake: Lake, duck: Duck) -> None:
    names = ("minute", "queue", "event", "published", "delivered", "succeeded", "retried")
    more = ("dead_lettered", "bytes", "failure_rate", "retry_rate")
    theirs = duck.rows(
        """
        SELECT date_trunc('minute', "at"), queue, event,
            count(*) FILTER (kind = 'published'), count(*) FILTER (kind = 'delivered'),
            count(*) FILTER (outcome = 'succeeded'), count(*) FILTER (outcome = 'retried'),
            count(*) FILTER (outcome = 'dead-lettered'), sum(size)::BIGINT,
            count(*) FILTER (outcome IN ('retried', 'dead-lettered', 'dropped'))
                / nullif(count(*) FILTER (kind = 'delivered'), 0),
            count(*) FILTER (outcome = 'retried') / nullif(count(*) FILTER (kind = 'delivered'), 0)
        FROM <events> GROUP BY ALL
        """
    )
    same(ours(lake, THROUGHPUT, *names, *more), theirs)


@pytest.mark.faults
@pytest.mark.parametrize(
    ("number", "table", "time"),
    [
        ("duration", "(SELECT * FROM <events> WHERE kind = 'delivered')", '"at"'),
        ("wait", "<lifecycle>", "first_at"),
        ("latency", "<lifecycle>", "settled_at"),
    ],
)
def test_percentiles_are_those_of_duckdb(
    lake: Lake, duck: Duck, number: str, table: str, time: str
) -> None:
    theirs = duck.rows(
        f"""
        SELECT date_trunc('minute', {time}), queue, event, quantile_cont("{number}", 0.5),
            quantile_cont("{number}", 0.95), quantile_cont("{number}", 0.99)
        FROM {table} WHERE "{number}" IS NOT NULL GROUP BY ALL
        """
    )
    names = [f"{number}_{name}" for name in ("p50", "p95", "p99")]
    mine = ours(lake, THROUGHPUT, "minute", "queue", "event", *names)
    same([row for row in mine if row[3] is not None], theirs)


def test_lives_are_those_that_duckdb_finds(lake: Lake, duck: Duck) -> None:
    theirs = duck.rows(
        """
        SELECT d.message_id, d.queue, count(*)::INT, max(attempt)::INT, max(d.at),
            arg_max(outcome, d.at), sum(duration), min(d.published_at)
        FROM <events> d WHERE kind = 'delivered' GROUP BY ALL
        """
    )
    names = ("message_id", "queue", "deliveries", "attempts", "settled_at", "outcome", "duration")
    mine = [row for row in ours(lake, LIFECYCLE, *names, "published_at") if row[1] is not None]
    same(mine, theirs)
    unseen = duck.rows(
        """
        SELECT message_id, replay_id FROM <events> p WHERE kind = 'published' AND NOT EXISTS (
            FROM <events> d WHERE d.kind = 'delivered' AND d.message_id = p.message_id
            AND d.replay_id IS NOT DISTINCT FROM p.replay_id)
        """
    )
    assert unseen
    lives = ours(lake, LIFECYCLE, "message_id", "replay_id", "queue")
    assert [row[:2] for row in lives if row[2] is None] == unseen


def test_dead_letters_are_grouped_as_duckdb_would(lake: Lake, duck: Duck) -> None:
    theirs = duck.rows(
        """
        SELECT queue, event, error_type, count(*), min("at"), max("at"), arg_max(message_id, "at")
        FROM <events> WHERE outcome = 'dead-lettered' GROUP BY ALL
        """
    )
    names = ("queue", "event", "error_type", "count", "first_seen", "last_seen", "message_ids")
    mine = [(*row[:-1], row[-1][0]) for row in ours(lake, DEAD_LETTERS, *names)]
    assert mine == theirs


def test_backlogs_end_as_what_duckdb_sees_waiting(lake: Lake, duck: Duck) -> None:
    """What was published since a queue is known for its event, and not settled there, waits."""
    theirs = duck.rows(
        """
        WITH bound AS (
            SELECT event, queue, min(date_trunc('minute', arrived_at)) AS since FROM <lifecycle>
            WHERE queue IS NOT NULL GROUP BY ALL),
        arrived AS (
            SELECT message_id, replay_id, bound.queue FROM <events> e JOIN bound USING (event)
            WHERE kind = 'published' AND date_trunc('minute', published_at) >= since
            UNION SELECT message_id, replay_id, queue FROM <events> WHERE kind = 'delivered'),
        settled AS (FROM <lifecycle> WHERE outcome IS NOT NULL AND outcome <> 'retried')
        SELECT queue, count(*) FROM arrived a WHERE NOT EXISTS (
            FROM settled s WHERE s.message_id = a.message_id AND s.queue = a.queue
            AND s.replay_id IS NOT DISTINCT FROM a.replay_id)
        GROUP BY ALL
        """
    )
    last: dict[str, tuple[Any, int]] = {}
    for minute, queue, backlog in ours(lake, GROWTH, "minute", "queue", "backlog"):
        last[queue] = max(last.get(queue, (minute, backlog)), (minute, backlog))
    mine = sorted((queue, backlog) for queue, (_, backlog) in last.items())
    assert mine == theirs
