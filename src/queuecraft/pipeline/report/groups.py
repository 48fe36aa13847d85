"""Groups of dead letters with the same cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from queuecraft.pipeline.report.figures import FailureGroup, moment
from queuecraft.pipeline.report.tables import table
from queuecraft.pipeline.schemas import DEAD_LETTERS, EVENTS
from queuecraft.pipeline.transforms.dead_letters import dead_letters as grouped
from queuecraft.pipeline.transforms.deaths import deaths
from queuecraft.pipeline.transforms.deaths import letters as found

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from queuecraft.pipeline.lake import Lake
    from queuecraft.pipeline.report.scope import Scope


def dead_letters(spark: SparkSession, lake: Lake, scope: Scope) -> DataFrame:
    """The groups in this scope, as `schemas.DEAD_LETTERS` has them. A part of the time is counted
    from the events, as the table has only sums."""
    if scope.timed:
        return scope.about(grouped(deaths(_events(spark, lake, scope))))
    return scope.about(table(spark, lake, DEAD_LETTERS))


def letters(spark: SparkSession, lake: Lake, scope: Scope) -> DataFrame:
    """The dead letters that the groups in this scope count, a row for each."""
    return scope.about(found(_events(spark, lake, scope)))


def collected(groups: DataFrame, order: Column, most: int) -> tuple[FailureGroup, ...]:
    """The first groups in this order."""
    rows = (
        groups.orderBy(order, f.desc("last_seen"), *DEAD_LETTERS.key)
        .limit(most)
        .withColumns({name: f.unix_micros(name) / 1e6 for name in ("first_seen", "last_seen")})
        .collect()
    )
    return tuple(_group(row) for row in rows)


def _events(spark: SparkSession, lake: Lake, scope: Scope) -> DataFrame:
    """What happened in this time, with the hour of birth, by which the table counts too."""
    return table(spark, lake, EVENTS, by_hours=True).where(scope.at("at"))


def _group(row: Row) -> FailureGroup:
    first, last = row["first_seen"], row["last_seen"]
    return FailureGroup(
        fingerprint=row["fingerprint"] or "",
        queue=row["queue"],
        event=row["event"],
        reason=row["reason"],
        error_type=row["error_type"],
        error=row["error"],
        count=row["count"] or 0,
        first_seen=None if first is None else moment(first),
        last_seen=None if last is None else moment(last),
        message_ids=tuple(each for each in row["message_ids"] or () if each is not None),
    )
