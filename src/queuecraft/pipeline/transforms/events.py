"""Silver: each row once, and only those that can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from queuecraft.codec.headers import ORIGINAL_QUEUE
from queuecraft.pipeline.schemas import EVENTS
from queuecraft.pipeline.transforms.birth import birth_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def events(messages: DataFrame) -> DataFrame:
    """The readable rows of bronze without duplicates.

    Of rows with the same key the newest is kept: a message that was sent back from the dead
    letters counts its attempts anew, and what became of it then is what matters. Of a message that
    was captured it is the oldest, since its place among others is where it came first. The dead
    letters of several queues may be captured from one.
    """
    born = birth_in(messages)
    died_in = f.coalesce(f.col("headers")[ORIGINAL_QUEUE], f.lit(""))
    came = (f.col("kind") == "captured") & (died_in == "")
    kept = Window.partitionBy(*EVENTS.key, died_in, *born).orderBy(
        f.when(came, f.col("at")),
        f.desc("at"),
        f.desc("segment"),
        # Which of two from the same instant does not matter, as long as it is always the same.
        f.xxhash64("outcome", "reason", "error", "duration", "size", "payload", "host", "process"),
    )
    return (
        messages.where("problem IS NULL")
        .withColumn("_rank", f.row_number().over(kept))
        .where("_rank = 1")
        .select(*EVENTS.names, *born)
    )
