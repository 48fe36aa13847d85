"""The table of a plan: the messages to be sent, as complete as they were."""

from __future__ import annotations

from queuecraft.pipeline.schemas import Table

MESSAGE = Table(
    "message",
    (
        ("message_id", "string"),
        ("queue", "string"),  # where it goes; null: through the exchange
        ("exchange", "string"),  # null as well: the one of the connection
        ("event", "string"),
        ("key", "string"),
        ("published_at", "timestamp"),
        ("expires_at", "timestamp"),
        ("content_type", "string"),
        ("content_encoding", "string"),
        ("correlation_id", "string"),
        ("priority", "int"),
        ("headers", "map<string,string>"),
        ("typed_headers", "string"),
        ("payload", "binary"),
    ),
    key=("message_id", "queue"),
)
"""What a transform is handed, and gives back: columns of the archive, but for `queue` and
`exchange`, which say where the message goes."""

SETTABLE = MESSAGE.names

AT = "_at"
"""When a message came into the archive: what was captured came in its order. No transform is handed
it, and no plan has it."""

STAGED = Table("staged", (*MESSAGE.columns, (AT, "timestamp")), key=MESSAGE.key)
"""Messages on their way into a plan."""

PLAN = Table(
    "plan",
    (*MESSAGE.columns, ("size", "bigint"), ("replay_id", "string"), ("position", "bigint")),
    key=("position",),
)
"""The same with its place in the order. It is partitioned by `chunk`."""
