"""The numbers of a report, against a lake small enough to reckon by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from queuecraft.model.errors import ConfigError, QueueError
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.report.figures import (
    Anomaly,
    Axis,
    Counts,
    Drift,
    Field,
    Figures,
    Percentiles,
    Problem,
    Speed,
)
from queuecraft.pipeline.report.reading import read_figures
from queuecraft.pipeline.report.scope import Scope
from tests.pipeline.report.shop import shop
from tests.pipeline.report.written import at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    found = Lake.at(tmp_path_factory.mktemp("lake"))
    shop(found)
    return found


@pytest.fixture(scope="module")
def figures(spark: SparkSession, lake: Lake) -> Figures:
    return read_figures(spark, lake)


def test_everything_together_is_the_sum_of_all_queues(figures: Figures) -> None:
    assert figures.counts == Counts(
        published=35, delivered=42, succeeded=35, retried=3, dead=2, dropped=1, expired=1, bytes=500
    )
    assert figures.counts.failed == 6
    assert (figures.first, figures.last) == (at(0), at(60))
    assert figures.axis == Axis(int(at(0).timestamp()), 60, 60)
    assert figures.unseen == 1


def test_each_queue_has_its_own_numbers_the_busiest_first(figures: Figures) -> None:
    billing, mail = figures.queues
    assert (billing.queue, mail.queue) == ("billing", "mail")
    assert billing.counts == Counts(
        published=100, delivered=30, succeeded=24, retried=3, dead=2, dropped=1, bytes=200
    )
    assert billing.counts.failure_rate == pytest.approx(0.2)
    assert billing.counts.retry_rate == pytest.approx(0.1)
    assert mail.counts == Counts(published=1, delivered=12, succeeded=11, expired=1)


def test_percentiles_are_of_messages_and_not_of_minutes(figures: Figures) -> None:
    billing, mail = figures.queues
    assert billing.speed == Speed(
        wait=Percentiles(5.0, 9.5, 9.9),
        duration=Percentiles(0.5, 0.95, 0.99),
        latency=Percentiles(50.0, 95.0, 99.0),
    )
    assert mail.speed.latency == Percentiles(5.0, 5.0, 5.0)
    assert figures.latency == Percentiles(50.0, 95.0, 99.0)


def test_over_time_each_minute_has_what_happened_in_it(figures: Figures) -> None:
    counts, latency = figures.series.counts, figures.series.latency
    assert counts[0] == Counts(published=30, delivered=30, succeeded=30, bytes=500)
    assert counts[10].failed == 6
    assert counts[59] == Counts(delivered=2, succeeded=1, expired=1)
    assert sum(counts, start=Counts()) == figures.counts
    assert latency[0] == Percentiles(50.0, 95.0, 99.0)
    assert latency[59] == Percentiles(5.0, 5.0, 5.0)
    assert {place for place, each in enumerate(latency) if each != Percentiles()} == {0, 59}
    billing = figures.queues[0].series
    assert billing is not None
    assert billing.counts[0] == Counts(published=100, delivered=20, succeeded=20, bytes=200)
    assert billing.latency[59] == Percentiles()


def test_the_worst_minutes_are_those_with_failures_and_the_slow_ones(figures: Figures) -> None:
    (worst,) = figures.worst
    assert (worst.at, worst.queue, worst.counts.failed, worst.p99) == (at(10), "billing", 6, 9.0)
    slow = [(each.queue, each.p99) for each in figures.slowest]
    assert slow == [("billing", 9.0), ("mail", 0.3), ("billing", 0.2), ("mail", 0.1)]


def test_a_backlog_stays_what_it_was_until_it_changes(figures: Figures) -> None:
    billing, mail = figures.growth
    assert (billing.queue, billing.backlog, billing.highest, billing.anomalies) == (
        *("billing", 5, 50, 1),
    )
    assert (billing.arrived, billing.left) == (80, 75)
    assert billing.series[0:12] == (*([10] * 10), 50, 50)
    assert billing.series[29:32] == (50, 5, None)
    assert billing.marks == (10,)
    assert mail.series[:2] == (0, None)
    assert figures.anomalies == (Anomaly(at(10), "billing", 50, 10, 1.0, 12.5),)


def test_failure_groups_come_with_the_largest_first(figures: Figures) -> None:
    assert [(each.fingerprint, each.count) for each in figures.groups] == [("bbbb", 7), ("aaaa", 1)]
    assert figures.groups[0].message_ids == ("b-3", "b-2")
    assert figures.groups[0].first_seen == at(-600)
    assert figures.more_groups == 0


def test_changed_fields_and_unreadable_rows_are_counted(figures: Figures) -> None:
    seen: dict[str, Any] = {"event": "order.placed", "count": 4, "share": 0.5, "first_seen": at(0)}
    assert figures.drift == Drift(
        events=1,
        fields=3,
        changes=(
            Field(field="tax", type="number", change="gone", last_seen=at(5), **seen),
            Field(field="total", type="string", change="type", last_seen=at(59), **seen),
        ),
    )
    assert figures.quarantine == (
        Problem("torn", 2, "date=2030-01-07/c.parquet"),
        Problem("unknown version", 1, "date=2030-01-07/a.parquet"),
    )


def test_the_heat_map_has_a_row_for_each_day_of_a_short_time(figures: Figures) -> None:
    ((day, hours),) = figures.heat.rows
    assert (day, figures.heat.weekly) == ("Mon 2030-01-07", False)
    assert [each.delivered for each in hours] == [0] * 9 + [42] + [0] * 14


def test_a_scope_leaves_out_what_is_not_asked_for(spark: SparkSession, lake: Lake) -> None:
    scope = Scope(since=at(5), until=at(20), queues=("billing",), events=("order.*",))
    figures = read_figures(spark, lake, scope)
    assert figures.scope == (
        "queue billing, event order.*, since 2030-01-07 09:05 UTC, until 2030-01-07 09:20 UTC"
    )
    # Nothing was published to billing in this time, and nothing that it got settled.
    assert figures.counts == Counts(delivered=10, succeeded=4, retried=3, dead=2, dropped=1)
    assert figures.latency == Percentiles()
    assert figures.queues[0].speed == Speed()
    assert [each.queue for each in figures.queues] == ["billing"]
    assert (figures.first, figures.last) == (at(10), at(11))
    assert [(each.arrived, each.anomalies) for each in figures.growth] == [(50, 1)]
    # Of the seven dead letters of the group, two died in this time.
    (group,) = figures.groups
    assert (group.fingerprint, group.count, group.message_ids) == ("bbbb", 2, ("b-3", "b-2"))
    assert (group.first_seen, group.error) == (at(10.2), "'id'")


def test_an_empty_lake_is_reported_on_as_such(spark: SparkSession, tmp_path: Path) -> None:
    assert read_figures(spark, Lake.at(tmp_path)) == Figures(scope="everything")


def test_the_same_lake_gives_the_same_numbers(
    spark: SparkSession, lake: Lake, figures: Figures
) -> None:
    assert read_figures(spark, lake) == figures


def test_a_table_that_cannot_be_read_is_told_of_with_what_to_do(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake.at(tmp_path)
    (lake.tables / "throughput").mkdir(parents=True)
    (lake.tables / "throughput" / "part-0.parquet").write_bytes(b"PAR1 this is none PAR1")
    with pytest.raises(QueueError, match=r"could not read the tables of .* try again when"):
        read_figures(spark, lake)


def test_a_time_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ConfigError, match="nothing lies between"):
        Scope(since=at(5), until=at(5))
