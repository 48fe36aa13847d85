"""Planning a replay: the messages are chosen, put in order and written down."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from pyspark.sql import functions as f

from queuecraft.failpoints import failpoint
from queuecraft.model.errors import ConfigError, QueueError
from queuecraft.pipeline.jobs.tables import prepare
from queuecraft.pipeline.replay.choice import addressed, chosen
from queuecraft.pipeline.replay.expression import quiet, reason, with_values
from queuecraft.pipeline.replay.job import interruptible
from queuecraft.pipeline.replay.ledger import Ledger, new_id, sweep
from queuecraft.pipeline.replay.order import STRETCH, bounds, chunked, numbered
from queuecraft.pipeline.replay.plan import Example, Line, Plan
from queuecraft.pipeline.replay.question import Question
from queuecraft.pipeline.replay.table import AT, MESSAGE, PLAN, STAGED
from queuecraft.pipeline.report.tables import table
from queuecraft.pipeline.schemas import EVENTS, MESSAGES, SEGMENTS, Table
from queuecraft.pipeline.segments import make_folder, sync

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from queuecraft.pipeline.lake import Lake

    Transform: TypeAlias = Callable[[DataFrame], DataFrame]

CHOSEN, CHANGED = "chosen", "changed"  # what is kept apart while a plan is made
EXAMPLES = 5
SHOWN = 200  # characters of a payload


def plan(
    spark: SparkSession,
    lake: Lake,
    question: Question | None = None,
    *,
    transform: Transform | None = None,
) -> Plan:
    """Choose messages from a lake and write down which go where, in which order; nothing is sent.
    `execute` does that, with the id of the plan.

    `transform` is a function, where the question names none. The same question to the same lake
    gives the same messages in the same chunks. If none is meant, nothing is written.

    Raises `ConfigError` if the question makes no sense, and `QueueError` if messages are meant of
    which the archive has no payload at all.
    """
    question = question or Question()
    transform = transform or (None if question.transform is None else found(question.transform))
    ledger = Ledger(lake.replays / new_id())
    prepare(spark)
    rows = archive(spark, lake, EVENTS if not question.quarantined else MESSAGES)
    meant = addressed(chosen(rows, question), question)
    sweep(lake)
    make_folder(ledger.folder)
    try:
        with ledger.locked():
            made = interruptible(spark, lambda: _written(spark, ledger, question, meant, transform))
        if not made.messages:
            shutil.rmtree(ledger.folder)  # NFS would keep what is still locked there
        return made
    except BaseException:
        shutil.rmtree(ledger.folder, ignore_errors=True)
        raise
    finally:
        for name in (CHOSEN, CHANGED):
            shutil.rmtree(ledger.folder / name, ignore_errors=True)


def archive(spark: SparkSession, lake: Lake, source: Table = EVENTS) -> DataFrame:
    """The rows of a lake: of its table of events, or another, or of its segments while there is
    none."""
    if (lake.tables / source.name).is_dir():
        return table(spark, lake, source).select(*SEGMENTS.names)
    if not lake.segments.is_dir():
        raise ConfigError(
            f"there is nothing to replay in {lake.root}: no segments, no tables; is the path right?"
        )
    return (
        spark.read.schema(SEGMENTS.spark)
        .parquet(str(lake.segments.absolute()))
        .select(*SEGMENTS.names)
    )


def found(place: str) -> Transform:
    """The function that `module:function` names."""
    module, colon, function = place.partition(":")
    if not colon or not module or not function:
        raise ConfigError(f"transform={place!r}: expected module:function, as in mending:fix")
    value: Any
    try:
        value = getattr(import_module(module), function)
    except ImportError as error:
        raise ConfigError(
            f"transform={place!r} cannot be imported: {error}; is its folder in PYTHONPATH?"
        ) from None
    except AttributeError:
        raise ConfigError(f"transform={place!r}: there is no {function!r} in {module}") from None
    if not callable(value):
        raise ConfigError(f"transform={place!r} is no function")
    return cast("Transform", value)


def _written(
    spark: SparkSession,
    ledger: Ledger,
    question: Question,
    meant: DataFrame,
    transform: Transform | None,
) -> Plan:
    # Kept apart first: an expensive choice, made once, gives the same to all that follows.
    with _telling(question):
        staged = _kept_apart(spark, ledger, CHOSEN, meant.withColumn(AT, f.col("at")))
    messages = staged.where(f.col("payload").isNotNull())
    (counts,) = staged.agg(f.count("*").alias("all"), f.count("payload").alias("whole")).collect()
    count, missing = counts["whole"], counts["all"] - counts["whole"]
    if missing and not count:
        raise QueueError(
            f"{missing:,} messages are meant, and the archive has the payload of none; capture the "
            'queue (queuecraft lake capture), or let the journal keep payloads: "full"'
        )
    now = datetime.now(UTC)
    result = Plan(
        id=ledger.folder.name,
        question=question,
        planned_at=now,
        missing=missing,
        transformed=transform is not None,
    )
    if count:
        with _telling(question):
            messages = _changed(messages, question, transform)
            if count > STRETCH and (question.set or transform is not None):
                # It is looked at several times, and a service that is asked, or rand(), may say
                # something else each time: then two would get one place, and the last none.
                messages = _kept_apart(spark, ledger, CHANGED, messages)
                count = messages.count()
            _put_in_order(messages, count, result, ledger)
        written = spark.read.schema(PLAN.spark).parquet(str(ledger.table.absolute()))
        _add_up(written)
        lines = _lines(written, now, question)
        result = replace(result, lines=lines, examples=_examples(ledger) if lines else ())
    if result.messages:
        for path in ledger.table.rglob("*.parquet"):
            sync(path)  # Spark leaves that to the machine, and a power cut may come
        failpoint("replay.before_plan")
        ledger.keep(result)
    return result


def _kept_apart(spark: SparkSession, ledger: Ledger, name: str, messages: DataFrame) -> DataFrame:
    """The same messages, whatever they were made of would give the next time."""
    place = str((ledger.folder / name).absolute())
    messages.select(*STAGED.names).write.parquet(place)
    return spark.read.schema(STAGED.spark).parquet(place)


def _changed(messages: DataFrame, question: Question, transform: Transform | None) -> DataFrame:
    """The messages as they are to be sent."""
    if "payload" in question.set and "content_encoding" not in question.set:
        packed = messages.where(f.col("content_encoding").isNotNull()).count()
        if packed:
            raise ConfigError(
                f"{packed:,} of the messages are compressed, and an expression cannot read their "
                "payloads; leave them out (where content_encoding is null), set content_encoding "
                "too, or give a transform that unpacks them"
            )
    messages = with_values(messages, question.set)
    if transform is None:
        return messages
    times = messages.groupBy("message_id").agg(f.min(AT).alias(AT))
    messages = transform(messages.drop(AT))
    lost = [name for name in MESSAGE.names if name not in messages.columns]
    if lost:
        raise ConfigError(
            f"the transform gives back no column {', '.join(lost)}; it has to keep what it is given"
        )
    changed = messages.select(
        *(f.col(name).cast(kind).alias(name) for name, kind in MESSAGE.columns)
    )
    return changed.join(times, "message_id", "left")


def _put_in_order(messages: DataFrame, count: int, result: Plan, ledger: Ledger) -> None:
    question = result.question
    ordered = numbered(messages, bounds(messages, count, STRETCH))
    whole = ordered.withColumns(
        {"size": f.length("payload").cast("bigint"), "replay_id": f.lit(result.id)}
    )
    (
        chunked(whole, question.canary, question.chunk)
        .select("chunk", *PLAN.names)
        .repartition("chunk")
        .sortWithinPartitions("chunk", "position")
        .write.partitionBy("chunk")
        .parquet(str(ledger.table.absolute()))
    )


def _add_up(written: DataFrame) -> None:
    """See that every place in the order is taken, and taken once: what is in a chunk beyond the
    last would never be sent."""
    (row,) = written.agg(
        f.count("*").alias("messages"),
        f.count_distinct("position").alias("places"),
        f.min("position").alias("first"),
        f.max("position").alias("last"),
    ).collect()
    messages = row["messages"]
    if messages and (row["places"], row["first"], row["last"]) != (messages, 0, messages - 1):
        raise QueueError(
            f"{messages:,} messages were written down, and their places in the order do not add "
            "up; see to it that what changes them gives the same for the same message each time, "
            "and plan the replay anew"
        )


def _lines(written: DataFrame, now: datetime, question: Question) -> tuple[Line, ...]:
    """What goes where, the most first."""
    rows = (
        written.groupBy("event", "queue", "exchange")
        .agg(
            f.count("*").alias("messages"),
            f.sum("size").alias("size"),
            f.count_if(f.col("message_id").isNull() | f.col("payload").isNull()).alias("empty"),
            f.count_if(f.col("expires_at") <= f.lit(now)).alias("expired"),
            f.unix_micros(f.min("published_at")).alias("first"),
            f.unix_micros(f.max("published_at")).alias("last"),
        )
        .orderBy(f.desc("messages"), "event", "queue", "exchange")
        .collect()
    )
    if empty := sum(row["empty"] for row in rows):
        raise ConfigError(
            f"{empty:,} messages have no id or no payload after they were changed; see to it that "
            "the expressions, or the transform, give one for each"
        )
    return tuple(
        Line(
            event=row["event"],
            queue=row["queue"],
            exchange=row["exchange"],
            messages=row["messages"],
            size=row["size"],
            first=_moment(row["first"]),
            last=_moment(row["last"]),
            expired=row["expired"],
        )
        for row in rows
    )


def _examples(ledger: Ledger) -> tuple[Example, ...]:
    from pyarrow.parquet import read_table

    columns = ["position", "message_id", "event", "queue", "key", "published_at", "payload"]
    table = read_table(ledger.chunk(0), columns=columns)
    rows = table.sort_by("position").slice(0, EXAMPLES).to_pylist()
    return tuple(
        Example(
            message_id=row["message_id"],
            event=row["event"],
            queue=row["queue"],
            key=row["key"],
            published_at=row["published_at"],
            payload=row["payload"][:SHOWN].decode("utf-8", "backslashreplace"),
        )
        for row in rows
    )


def _moment(micros: int | None) -> datetime | None:
    # By hand: what Spark hands over is in the time zone of the session, without saying so.
    return None if micros is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(0, 0, micros)


@contextmanager
def _telling(question: Question) -> Generator[None]:
    """Tell what Spark met while it worked; an expression may fail on one message in a million."""
    try:
        with quiet():
            yield
    except QueueError:
        raise
    except Exception as error:  # Spark's own, or those of the bridge to it
        if question.where is None and not question.set:
            raise QueueError(f"the messages cannot be chosen: {reason(error)}") from error
        raise ConfigError(
            f"an expression fails on a message: {reason(error)}; try_cast and its like give null "
            "instead"
        ) from error
