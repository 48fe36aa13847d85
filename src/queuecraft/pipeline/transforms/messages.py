"""Bronze: every row of every segment, as it came, with the segment and what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from queuecraft.pipeline.schemas import MESSAGES, SEGMENTS
from queuecraft.pipeline.transforms.birth import birth
from queuecraft.pipeline.transforms.problem import problem

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def messages(segments: DataFrame) -> DataFrame:
    """Rows of segments, as they are read from files: `file_path` is the file they are in, `date`
    the day it was written. They come with the `date` and `hour` their messages were born."""
    segment = f.regexp_extract("file_path", "([^/]+/)?[^/]+$", 0)
    written = f.col("date").try_cast("date")
    known = segments.select(*SEGMENTS.names, segment.alias("segment"), written.alias("written"))
    born = birth()
    return known.withColumn("problem", problem()).select(
        *MESSAGES.names, born.cast("date").alias("date"), f.hour(born).alias("hour")
    )
