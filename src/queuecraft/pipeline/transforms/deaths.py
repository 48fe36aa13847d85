"""Dead letters of an hour, by cause: what their groups are reckoned from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as f

from queuecraft.codec.headers import ORIGINAL_QUEUE, TRACEBACK
from queuecraft.model.fingerprint import fingerprint
from queuecraft.pipeline.schemas import DEATHS
from queuecraft.pipeline.transforms.birth import birth_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EXAMPLES: Final = 5
LETTER: Final = (
    "message_id string, replay_id string, queue string, event string, reason string, "
    "error_type string, error string, at timestamp, fingerprint string, traceback string"
)


def letters(events: DataFrame) -> DataFrame:
    """Messages that were dead-lettered, or captured as dead letters: each counts once in the queue
    that failed it, and once more when it was sent back and failed again."""
    born = birth_in(events)
    captured = f.col("kind") == "captured"
    found = (
        events.where(
            ((f.col("kind") == "delivered") & (f.col("outcome") == "dead-lettered"))
            | (captured & f.coalesce("error_type", "reason").isNotNull())
        )
        .select(
            "message_id",
            "replay_id",
            f.when(captured, f.coalesce(f.col("headers")[ORIGINAL_QUEUE], "queue"))
            .otherwise(f.col("queue"))
            .alias("queue"),
            "event",
            "reason",
            "error_type",
            "error",
            "at",
            "fingerprint",
            f.col("headers")[TRACEBACK].alias("traceback"),
            captured.alias("captured"),
            *born,
        )
        .withColumn(
            "_rank",
            f.row_number().over(
                Window.partitionBy("message_id", "replay_id", "queue", *born).orderBy(
                    "captured", f.desc("at"), "fingerprint"
                )
            ),
        )
        .where("_rank = 1")
        .drop("_rank", "captured")
    )
    extra = "".join(f", {name} {found.schema[name].dataType.simpleString()}" for name in born)
    return found.mapInArrow(_named, LETTER + extra)


def deaths(events: DataFrame) -> DataFrame:
    """The dead letters by cause, queue and event."""
    born = birth_in(events)
    newest = f.struct("at", "message_id")
    return (
        letters(events)
        .groupBy("fingerprint", "queue", "event", *born)
        .agg(
            *(f.max_by(name, newest).alias(name) for name in ("reason", "error_type", "error")),
            f.count("*").alias("count"),
            f.min("at").alias("first_seen"),
            f.max("at").alias("last_seen"),
            f.slice(f.sort_array(f.collect_list(newest), asc=False), 1, EXAMPLES).alias("newest"),
        )
        .select(*DEATHS.names, *born)
    )


def _named(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give those a fingerprint that have none, as the core would have."""
    for batch in batches:
        columns = {
            name: batch.column(name).to_pylist()
            for name in ("fingerprint", "error_type", "reason", "error", "traceback")
        }
        if None in columns["fingerprint"]:
            prints = [
                known or fingerprint(kind or reason or "", error or "", traceback or "")
                for known, kind, reason, error, traceback in zip(*columns.values(), strict=True)
            ]
            place = batch.schema.get_field_index("fingerprint")
            batch = batch.set_column(place, "fingerprint", pa.array(prints, pa.string()))
        yield batch
