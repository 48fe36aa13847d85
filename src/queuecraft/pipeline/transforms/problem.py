"""What is wrong with a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from queuecraft.observers.journal.row import VERSION
from queuecraft.pipeline.transforms.birth import possible

if TYPE_CHECKING:
    from pyspark.sql import Column

LATEST: Final = 7
"""Days after which a row that only then comes into the lake is late: the tables of its time may
have been read, sent on and thrown away."""

TORN: Final = "unreadable segment"
"""The reason in the row that stands for a segment that cannot be read."""

KINDS: Final = ("published", "delivered", "captured")
CHECKED: Final = 16 << 20  # bytes; what is larger is not looked into


def problem() -> Column:
    """What is wrong with a row; null if nothing is. `written` is the day its segment was."""
    known = f.col("published_at").isNotNull()
    return (
        f.when((f.col("kind") == "unreadable") & (f.col("reason") == TORN), TORN)
        .when(f.col("kind") == "unreadable", "unreadable line")
        .when(~f.coalesce(f.col("version").between(1, VERSION), f.lit(False)), "unknown version")
        .when(~f.coalesce(f.col("kind").isin(*KINDS), f.lit(False)), "unknown kind")
        .when(f.coalesce(f.col("message_id"), f.lit("")) == "", "no message id")
        .when(~possible("at") | (known & ~possible("published_at")), "impossible time")
        .when(f.col("at") < f.date_sub("written", LATEST).cast("timestamp"), "late")
        .when(_claims_json() & ~_is_json(), "payload is not JSON")
    )


def _claims_json() -> Column:
    kind = f.lower(f.trim(f.split_part("content_type", f.lit(";"), f.lit(1))))
    plain = f.coalesce(f.col("content_encoding"), f.lit("")).isin("", "identity")
    return f.coalesce(
        (kind == "application/json") | kind.endswith("+json"), f.lit(False)
    ) & f.coalesce(plain & (f.octet_length("payload") <= CHECKED), f.lit(False))


def _is_json() -> Column:
    # In brackets, because the parser stops after the first value and would not see what follows.
    text = f.concat(f.lit("["), f.col("payload").cast("string"), f.lit("]"))
    values = f.try_parse_json(text).cast("array<variant>")
    return f.is_valid_utf8(f.col("payload").cast("string")) & f.coalesce(
        f.size(values) == 1, f.lit(False)
    )
