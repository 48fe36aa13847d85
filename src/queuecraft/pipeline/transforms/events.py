"""Silver: each row once, and only those that can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from queuecraft.pipeline.schemas import EVENTS
from queuecraft.pipeline.transforms.birth import birth_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def events(messages: DataFrame) -> DataFrame:
    """The readable rows of bronze without duplicates.

    Of rows with the same key the newest is kept: a message that was sent back from the dead
    letters counts its attempts anew, and what became of it then is what matters.
    """
    born = birth_in(messages)
    newest = Window.partitionBy(*EVENTS.key, *born).orderBy(
        f.desc("at"),
        f.desc("segment"),
        # Which of two from the same instant does not matter, as long as it is always the same.
        f.xxhash64("outcome", "reason", "error", "duration", "size", "payload", "host", "process"),
    )
    return (
        messages.where("problem IS NULL")
        .withColumn("_rank", f.row_number().over(newest))
        .where("_rank = 1")
        .select(*EVENTS.names, *born)
    )
