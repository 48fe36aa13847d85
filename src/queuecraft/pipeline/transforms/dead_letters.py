"""Gold: dead letters with the same cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from queuecraft.pipeline.schemas import DEAD_LETTERS
from queuecraft.pipeline.transforms.deaths import EXAMPLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def dead_letters(deaths: DataFrame) -> DataFrame:
    """Groups of all hours together, with the newest messages as examples."""
    last = f.struct("last_seen", "newest")
    newest = f.sort_array(f.flatten(f.collect_list("newest")), asc=False)
    return (
        deaths.groupBy("fingerprint", "queue", "event")
        .agg(
            *(f.max_by(name, last).alias(name) for name in ("reason", "error_type", "error")),
            f.sum("count").alias("count"),
            f.min("first_seen").alias("first_seen"),
            f.max("last_seen").alias("last_seen"),
            f.slice(newest, 1, EXAMPLES)["message_id"].alias("message_ids"),
        )
        .select(*DEAD_LETTERS.names)
    )
