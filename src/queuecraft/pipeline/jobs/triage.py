"""Triage: dead letters by their cause, with an example to look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from queuecraft.codec.registry import Compressors
from queuecraft.model.errors import QueueError
from queuecraft.pipeline.report import groups
from queuecraft.pipeline.report.figures import FailureGroup
from queuecraft.pipeline.report.scope import Scope
from queuecraft.pipeline.report.tables import reading, table
from queuecraft.pipeline.schemas import EVENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from queuecraft.pipeline.lake import Lake

LARGEST = 64 * 1024  # bytes of a payload that are looked at


@dataclass(frozen=True, slots=True)
class Example:
    """A message of a group, as far as it was archived."""

    message_id: str
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    typed_headers: str | None = None
    content_type: str | None = None
    payload: bytes | None = None
    """None if it was not archived; without compression if that could be undone."""
    size: int = 0
    """Bytes of the payload, which may be cut."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Dead letters with the same cause."""

    group: FailureGroup
    recovered: int
    """Those of them whose message succeeded later, after it was sent back."""
    example: Example | None
    """None if nothing of its messages was archived."""

    @property
    def open(self) -> int:
        """Dead letters that nobody has taken care of, as far as the lake knows."""
        return max(0, self.group.count - self.recovered)


@dataclass(frozen=True, slots=True)
class Triage:
    """What is wrong, the newest first."""

    troubles: tuple[Trouble, ...]
    groups: int
    """All there are."""


def triage(
    spark: SparkSession, lake: Lake, scope: Scope | None = None, *, limit: int = 20
) -> Triage:
    """Groups of dead letters in this scope, the one seen last first, and an example of each."""
    scope = scope or Scope()
    with reading(lake):
        dead = groups.dead_letters(spark, lake, scope)
        found = groups.collected(dead, f.desc_nulls_last("last_seen"), limit)
        count = len(found) if len(found) < limit else dead.count()
        if not found:
            return Triage((), 0)
        events = table(spark, lake, EVENTS)
        ids = sorted({each for group in found for each in group.message_ids})
        examples = {row["message_id"]: _example(row) for row in archived(events, ids).collect()}
        letters = groups.letters(spark, lake, scope).where(
            f.col("fingerprint").isin([group.fingerprint for group in found])
        )
        since = events.where(Scope(since=scope.since).at("at"))
        healed = {
            (row["fingerprint"], row["queue"], row["event"]): row["count"]
            for row in recovered(letters, since).collect()
        }
    troubles = (
        Trouble(
            group,
            healed.get((group.fingerprint, group.queue, group.event), 0),
            _best(group, examples),
        )
        for group in found
    )
    return Triage(tuple(troubles), count)


def archived(events: DataFrame, ids: list[str]) -> DataFrame:
    """One row for each of these messages: that which tells most, the beginning of its payload."""
    telling = Window.partitionBy("message_id").orderBy(
        f.col("payload").isNull(), f.col("headers").isNull(), f.desc("at"), "kind", "queue"
    )
    return (
        events.where(f.col("message_id").isin(ids))
        .withColumn("place", f.row_number().over(telling))
        .where("place = 1")
        .select(
            *("message_id", "key", "headers", "typed_headers", "content_type", "content_encoding"),
            f.substring("payload", 1, LARGEST).alias("payload"),
            f.octet_length("payload").alias("size"),
        )
    )


def recovered(letters: DataFrame, events: DataFrame) -> DataFrame:
    """How many dead letters of each group are of a message that succeeded in the same queue after
    that."""
    well = events.where("kind = 'delivered' AND outcome = 'succeeded'").select(
        f.col("queue").alias("well_in"),
        f.col("message_id").alias("well_id"),
        f.col("at").alias("well_at"),
    )
    later = (
        (f.col("queue") == f.col("well_in"))
        & (f.col("message_id") == f.col("well_id"))
        & (f.col("at") < f.col("well_at"))
    )
    return (
        letters.join(well, later, "left_semi")
        .groupBy("fingerprint", "queue", "event")
        .agg(f.count("*").alias("count"))
    )


def _example(row: Row) -> Example:
    payload = None if row["payload"] is None else bytes(row["payload"])
    if payload is not None and row["content_encoding"] and len(payload) == row["size"]:
        payload = _unpacked(payload, row["content_encoding"])
    return Example(
        message_id=row["message_id"],
        key=row["key"],
        headers=dict(row["headers"] or {}),
        typed_headers=row["typed_headers"],
        content_type=row["content_type"],
        payload=payload,
        size=row["size"] or 0,
    )


def _unpacked(payload: bytes, encoding: str) -> bytes:
    try:
        return Compressors().get(encoding).decompress(payload, LARGEST)
    except QueueError:
        return payload


def _best(group: FailureGroup, examples: Mapping[str, Example]) -> Example | None:
    known = [examples[each] for each in group.message_ids if each in examples]
    whole = (each for each in known if each.payload is not None)
    return next(whole, known[0] if known else None)
