"""Choosing messages from the archive: each once, and where it goes. `DataFrame → DataFrame`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from queuecraft.codec.headers import ORIGINAL_QUEUE, ORIGINAL_ROUTING_KEY
from queuecraft.pipeline.replay.expression import refusing
from queuecraft.pipeline.report.scope import Scope
from queuecraft.pipeline.schemas import SEGMENTS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from queuecraft.pipeline.replay.question import Question

# What a row says of the message itself, as against one delivery of it.
_CONTENT = (
    *("exchange", "key", "published_at", "expires_at", "content_type", "content_encoding"),
    *("correlation_id", "priority", "headers", "typed_headers", "payload"),
)


def chosen(rows: DataFrame, question: Question) -> DataFrame:
    """The messages that are meant, as rows of the archive. Those whose payload the archive does not
    have are among them."""
    scope = Scope(since=question.since, until=question.until)
    # All rows of a message have its time; told so early, Parquet leaves out what is older.
    timely = f.col("published_at").isNull() | scope.at("published_at")
    rows = _identified(rows.select(*SEGMENTS.names).where(timely))
    if question.source == "dead-letters":
        # Two queues that failed a message get it back each; a target that is named gets it once.
        back = question.to is None and question.to_event is None
        letters = _meant(_dead_letters(rows), question)
        return _once(letters, "message_id", *(["queue"] if back else []))
    found = _meant(_originals(rows), question, by_delivery=True)
    for name, value in (("queue", question.queue), ("fingerprint", question.fingerprint)):
        if value is not None:
            # A queue, or a failure, is known from deliveries, and what was sent from other rows.
            others = rows.where(f.col(name) == value).select("message_id").distinct()
            found = found.join(others, "message_id", "left_semi")
    return _once(found, "message_id")


def addressed(messages: DataFrame, question: Question) -> DataFrame:
    """The same, with `queue` and `exchange` saying where each goes: to the queue, or else through
    the exchange."""
    nowhere = f.lit(None).cast("string")
    queue, exchange, event = f.col("queue"), f.col("exchange"), f.col("event")
    if question.to is not None:
        queue, exchange = f.lit(question.to), nowhere
    elif question.to_event is not None:
        queue, event = nowhere, f.lit(question.to_event)
    elif question.source == "dead-letters":
        exchange = nowhere
    elif question.queue is not None:
        queue, exchange = f.lit(question.queue), nowhere
    else:
        queue = f.when(exchange.isNull(), queue)
    return messages.withColumns({"queue": queue, "exchange": exchange, "event": event})


def _identified(rows: DataFrame) -> DataFrame:
    """A foreign message may have no id and no time: it gets an id by what it is, so that it is the
    same again, and the time it was archived at."""
    own = f.md5(
        f.concat_ws("/", "queue", "event", f.unix_micros("at").cast("string"), f.md5("payload"))
    )
    given = f.when(f.col("message_id") != "", f.col("message_id"))
    return rows.withColumns(
        {"message_id": f.coalesce(given, own), "published_at": f.coalesce("published_at", "at")}
    )


def _originals(rows: DataFrame) -> DataFrame:
    """Messages as they were published."""
    return rows.where(f.col("kind").isin("captured", "published") & ~_is_dead_letter())


def _dead_letters(rows: DataFrame) -> DataFrame:
    """Messages that could not be handled: from the dead-letter queues that were captured, and from
    what workers reported; the queue is the one that failed them."""
    kept = rows.where((f.col("kind") == "captured") & _is_dead_letter()).withColumns(
        {
            "queue": _header(ORIGINAL_QUEUE),
            "event": f.coalesce(_header(ORIGINAL_ROUTING_KEY), "event"),
        }
    )
    delivered = rows.where(f.col("kind") == "delivered")
    reported = delivered.where(f.col("outcome") == "dead-lettered")
    letters = kept.unionByName(_filled(reported, _originals(rows)))
    succeeded = (
        delivered.where(f.col("outcome") == "succeeded")
        .groupBy("message_id", "queue")
        .agg(f.max("at").alias("succeeded_at"))
    )
    # Sent back since, and handled: it is no dead letter any more.
    return (
        letters.join(succeeded, ["message_id", "queue"], "left")
        .where(f.col("succeeded_at").isNull() | (f.col("succeeded_at") < f.col("at")))
        .select(*rows.columns)
    )


def _filled(reported: DataFrame, originals: DataFrame) -> DataFrame:
    """What workers reported, with the content of what was sent: as it was captured, since a journal
    may have masked it, or else, where a row has no payload, as its publisher noted it."""
    whole = originals.where(f.col("payload").isNotNull())
    wanted = whole.join(reported.select("message_id").distinct(), "message_id", "left_semi")
    best = _once(wanted, "message_id").select(
        "message_id", f.struct("kind", *_CONTENT).alias("original")
    )
    kind = f.col("original.kind")
    better = (kind == "captured") | (kind.isNotNull() & f.col("payload").isNull())
    content = {
        name: f.when(better, f.col(f"original.{name}")).otherwise(f.col(name)) for name in _CONTENT
    }
    joined = reported.join(best, "message_id", "left")
    return joined.withColumns(content).select(*reported.columns)


def _is_dead_letter() -> Column:
    return f.coalesce(_header(ORIGINAL_QUEUE).isNotNull(), f.lit(False))


def _header(name: str) -> Column:
    return f.col("headers").getItem(name)


def _meant(rows: DataFrame, question: Question, *, by_delivery: bool = False) -> DataFrame:
    """The rows that the question is about; `by_delivery`: queue and fingerprint are not in them.
    A dead letter is one whether or not it was sent back before."""
    scope = Scope(
        since=question.since,
        until=question.until,
        events=() if question.event is None else (question.event,),
    )
    rows = scope.about(rows.where(scope.at("published_at")))
    if by_delivery and not question.replayed:
        rows = rows.where(f.col("replay_id").isNull())
    for name, value in (
        ("key", question.key),
        ("queue", None if by_delivery else question.queue),
        ("fingerprint", None if by_delivery else question.fingerprint),
    ):
        if value is not None:
            rows = rows.where(f.col(name) == value)
    if question.ids:
        rows = rows.where(f.col("message_id").isin(list(question.ids)))
    if question.where is not None:
        with refusing(f"where={question.where!r}", SEGMENTS.names):
            rows = rows.where(question.where)
            _ = rows.schema  # a remote Spark looks at it no sooner
    return rows


def _once(rows: DataFrame, *key: str) -> DataFrame:
    """One row for each: with a payload if there is one, captured rather than published."""
    best: Sequence[Column] = (
        f.col("payload").isNull(),
        f.col("kind") != "captured",
        f.col("kind") != "published",
        f.col("replay_id").isNotNull(),
        f.col("attempt").desc(),
        f.col("at"),
        f.col("queue"),
        f.md5("payload"),
    )
    place = f.row_number().over(Window.partitionBy(*key).orderBy(*best))
    return rows.withColumn("_place", place).where(f.col("_place") == 1).drop("_place")
