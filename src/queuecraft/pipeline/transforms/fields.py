"""The fields of payloads, by event: what drift is reckoned from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.sql import functions as f

from queuecraft.pipeline.schemas import FIELDS
from queuecraft.pipeline.shape import Shape
from queuecraft.pipeline.transforms.birth import birth_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def fields(events: DataFrame) -> DataFrame:
    """How many payloads have which field as which type. Only what is JSON and not compressed is
    looked at, and of deliveries the first."""
    born = birth_in(events)
    rows = events.where(
        f.col("payload").isNotNull()
        & (f.coalesce(f.col("attempt"), f.lit(0)) <= 1)
        & f.coalesce(f.col("content_encoding"), f.lit("")).isin("", "identity")
    ).select("event", f.unix_micros("at").alias("at"), "payload", *born)
    extra = [f"{name} {rows.schema[name].dataType.simpleString()}" for name in born]
    counted = ", ".join(
        ["event string, field string, type string, count bigint, first bigint, last bigint", *extra]
    )
    return (
        rows.mapInArrow(_counted, counted)
        .groupBy("event", "field", "type", *born)
        .agg(
            f.sum("count").alias("count"),
            f.timestamp_micros(f.min("first")).alias("first_seen"),
            f.timestamp_micros(f.max("last")).alias("last_seen"),
        )
        .select(*FIELDS.names, *born)
    )


def _counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    decode = msgspec.json.Decoder().decode
    shapes: dict[tuple[Any, ...], Shape] = {}
    schema = None
    for batch in batches:
        events, times, payloads, *born = (column.to_pylist() for column in batch.columns)
        if schema is None:
            schema = _schema(batch.schema)
        for at, payload, *place in zip(times, payloads, events, *born, strict=True):
            try:
                value = decode(payload)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                continue
            key = tuple(place)
            if (shape := shapes.get(key)) is None:
                shape = shapes[key] = Shape()
            shape.add(value, at)
    rows = [
        (event, *field, *born)
        for (event, *born), shape in shapes.items()
        for field in shape.fields()
    ]
    if schema is not None and rows:
        columns = zip(*rows, strict=True)
        arrays = [pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _schema(given: pa.Schema) -> pa.Schema:
    texts = [pa.field(name, pa.string()) for name in ("event", "field", "type")]
    numbers = [pa.field(name, pa.int64()) for name in ("count", "first", "last")]
    return pa.schema([*texts, *numbers, *(given.field(at) for at in range(3, len(given)))])
