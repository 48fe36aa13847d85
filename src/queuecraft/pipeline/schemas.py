"""The columns of every table in a lake, in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_ARROW: dict[str, pa.DataType] = {
    "string": pa.string(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
    "array<string>": pa.list_(pa.string()),
    "array<struct<at:timestamp,message_id:string>>": pa.list_(
        pa.struct([("at", pa.timestamp("us", tz="UTC")), ("message_id", pa.string())])
    ),
}


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the lake, and the columns in it.

    >>> SEGMENTS.names[:3]
    ('kind', 'at', 'message_id')
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...] = ()
    """What there is one row for."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns."""
        return tuple(name for name, _ in self.columns)

    @property
    def arrow(self) -> pa.Schema:
        """As Arrow has it."""
        return pa.schema([pa.field(name, _ARROW[kind]) for name, kind in self.columns])

    @property
    def spark(self) -> StructType:
        """As Spark has it."""
        from pyspark.sql.types import (
            ArrayType,
            BinaryType,
            BooleanType,
            DataType,
            DateType,
            DoubleType,
            IntegerType,
            LongType,
            MapType,
            StringType,
            StructField,
            StructType,
            TimestampType,
        )

        moment = StructType(
            [StructField("at", TimestampType()), StructField("message_id", StringType())]
        )
        kinds: dict[str, DataType] = {
            "string": StringType(),
            "timestamp": TimestampType(),
            "date": DateType(),
            "int": IntegerType(),
            "bigint": LongType(),
            "double": DoubleType(),
            "boolean": BooleanType(),
            "binary": BinaryType(),
            "map<string,string>": MapType(StringType(), StringType()),
            "array<string>": ArrayType(StringType()),
            "array<struct<at:timestamp,message_id:string>>": ArrayType(moment),
        }
        return StructType([StructField(name, kinds[kind]) for name, kind in self.columns])


SEGMENTS = Table(
    "segments",
    (
        ("kind", "string"),  # published, delivered, captured, unreadable
        ("at", "timestamp"),
        ("message_id", "string"),
        ("queue", "string"),
        ("exchange", "string"),
        ("event", "string"),
        ("key", "string"),
        ("attempt", "int"),
        ("redeliveries", "int"),
        ("outcome", "string"),  # succeeded, retried, dead-lettered, dropped, expired
        ("reason", "string"),
        ("error_type", "string"),
        ("error", "string"),
        ("fingerprint", "string"),
        ("duration", "double"),  # seconds in the handler
        ("delay", "double"),  # seconds until the retry
        ("published_at", "timestamp"),
        ("due_at", "timestamp"),
        ("expires_at", "timestamp"),
        ("size", "bigint"),
        ("content_type", "string"),
        ("content_encoding", "string"),
        ("correlation_id", "string"),
        ("reply_to", "string"),
        ("priority", "int"),
        ("headers", "map<string,string>"),
        ("typed_headers", "string"),  # a JSON object: those whose value is no text
        ("payload", "binary"),
        ("replay_id", "string"),
        ("service", "string"),
        ("host", "string"),
        ("process", "int"),
        ("version", "int"),
    ),
    key=("message_id", "queue", "kind", "attempt", "replay_id"),
)
"""What the journal and captures write: append-only files of Parquet. See `journal.row`."""

EVENTS = Table("events", (*SEGMENTS.columns, ("segment", "string")), key=SEGMENTS.key)
"""Silver: each row once, and only those that can be read. `segment` is the file it came in."""

QUARANTINE = Table("quarantine", (*EVENTS.columns, ("problem", "string")), key=())
"""Silver: what cannot be read, and why."""

MESSAGES = Table("messages", QUARANTINE.columns, key=SEGMENTS.key)
"""Bronze: every row of every segment, as it came; `problem` is null if there is none."""

LIFECYCLE = Table(
    "lifecycle",
    (
        ("message_id", "string"),
        ("queue", "string"),  # null: published, and not seen by any worker yet
        ("replay_id", "string"),
        ("event", "string"),
        ("key", "string"),
        ("exchange", "string"),
        ("announced", "boolean"),  # a row of its publisher is there
        ("published_at", "timestamp"),
        ("arrived_at", "timestamp"),  # when it could first be handled: due, or published
        ("first_at", "timestamp"),  # the first delivery was settled
        ("settled_at", "timestamp"),  # the last one was
        ("deliveries", "int"),
        ("attempts", "int"),
        ("redeliveries", "int"),
        ("outcome", "string"),  # of the last delivery; null: none is known
        ("reason", "string"),
        ("error_type", "string"),
        ("error", "string"),
        ("fingerprint", "string"),
        ("wait", "double"),  # seconds from due to the first handler
        ("duration", "double"),  # seconds in handlers, all together
        ("latency", "double"),  # seconds from due to settled
        ("size", "bigint"),
    ),
    key=("message_id", "queue", "replay_id"),
)
"""Silver: one row a message and queue."""

THROUGHPUT = Table(
    "throughput",
    (
        ("minute", "timestamp"),
        ("queue", "string"),  # null: published through an exchange
        ("event", "string"),
        ("published", "bigint"),
        ("delivered", "bigint"),
        ("succeeded", "bigint"),
        ("retried", "bigint"),
        ("dead_lettered", "bigint"),
        ("dropped", "bigint"),
        ("expired", "bigint"),
        ("bytes", "bigint"),
        ("failure_rate", "double"),
        ("retry_rate", "double"),
        ("wait_p50", "double"),
        ("wait_p95", "double"),
        ("wait_p99", "double"),
        ("duration_p50", "double"),
        ("duration_p95", "double"),
        ("duration_p99", "double"),
        ("latency_p50", "double"),
        ("latency_p95", "double"),
        ("latency_p99", "double"),
    ),
    key=("minute", "queue", "event"),
)
"""Gold: how much, how well and how fast, by minute of `at`. Latencies are of deliveries that ended
a message in that minute; waits of first deliveries."""

GROWTH = Table(
    "growth",
    (
        ("minute", "timestamp"),
        ("queue", "string"),
        ("arrived", "bigint"),
        ("left", "bigint"),
        ("backlog", "bigint"),  # arrived less left since the beginning
        ("usual", "double"),  # the median of arrived less left over the hour before
        ("score", "double"),  # how many robust deviations from that (median and MAD)
        ("anomaly", "boolean"),
    ),
    key=("minute", "queue"),
)
"""Gold: whether queues grow, and when that is unusual."""

DEAD_LETTERS = Table(
    "dead_letters",
    (
        ("fingerprint", "string"),
        ("queue", "string"),
        ("event", "string"),
        ("reason", "string"),
        ("error_type", "string"),
        ("error", "string"),  # of the newest
        ("count", "bigint"),
        ("first_seen", "timestamp"),
        ("last_seen", "timestamp"),
        ("message_ids", "array<string>"),  # the newest, five at most
    ),
    key=("fingerprint", "queue", "event"),
)
"""Gold: dead letters with the same cause."""

DRIFT = Table(
    "drift",
    (
        ("event", "string"),
        ("field", "string"),  # "order.lines[].price"
        ("type", "string"),  # string, number, boolean, null, object, array
        ("count", "bigint"),
        ("first_seen", "timestamp"),
        ("last_seen", "timestamp"),
        ("share", "double"),  # of the event's payloads that have it so
        ("change", "string"),  # "", "new", "gone", "type"
    ),
    key=("event", "field", "type"),
)
"""Gold: the fields of each event's payloads, and how they change."""

FLOWS = Table(
    "flows",
    (
        ("minute", "timestamp"),
        ("event", "string"),
        ("queue", "string"),  # null: an exchange
        ("arrived", "bigint"),
        ("left", "bigint"),
        ("sent", "bigint"),  # published through an exchange
        ("claimed", "bigint"),  # of those that arrived, the ones that were sent so
    ),
    key=("minute", "event", "queue"),
)
"""Of each hour of birth: what `growth` is reckoned from."""

DEATHS = Table(
    "deaths",
    (
        ("fingerprint", "string"),
        ("queue", "string"),
        ("event", "string"),
        ("reason", "string"),
        ("error_type", "string"),
        ("error", "string"),
        ("count", "bigint"),
        ("first_seen", "timestamp"),
        ("last_seen", "timestamp"),
        ("newest", "array<struct<at:timestamp,message_id:string>>"),
    ),
    key=("fingerprint", "queue", "event"),
)
"""Of each hour of birth: what `dead_letters` is reckoned from."""

FIELDS = Table(
    "fields",
    (
        ("event", "string"),
        ("field", "string"),
        ("type", "string"),
        ("count", "bigint"),
        ("first_seen", "timestamp"),
        ("last_seen", "timestamp"),
    ),
    key=("event", "field", "type"),
)
"""Of each hour of birth: what `drift` is reckoned from."""

TABLES = (MESSAGES, EVENTS, QUARANTINE, LIFECYCLE, THROUGHPUT, GROWTH, DEAD_LETTERS, DRIFT)
PARTS = (FLOWS, DEATHS, FIELDS)
