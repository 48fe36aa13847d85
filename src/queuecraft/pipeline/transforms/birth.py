"""When the message of a row was born: all rows of a message share that, whenever they come.

Tables are kept in folders by the date and hour of birth. What belongs together is then in one
place, so that a row that comes late changes one hour of the lake and not all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

EARLIEST: Final = "2000-01-01T00:00:00Z"
AHEAD: Final = 2  # days that a clock may be ahead of the one that dated the segment


def birth() -> Column:
    """When the message of a row was published, or where that is not known or cannot be, when the
    row was written."""
    return f.coalesce(
        f.when(possible("published_at"), _to_the_millisecond("published_at")),
        f.when(possible("at"), f.col("at")),
        f.col("written").cast("timestamp"),
        f.lit(EARLIEST).cast("timestamp"),
    )


def birth_in(frame: DataFrame) -> list[str]:
    """The columns of birth, if a frame has them: they stay with its rows."""
    return [name for name in ("date", "hour") if name in frame.columns]


def possible(time: str) -> Column:
    """Whether a message can have lived then: not before 2000, nor after its segment was written;
    false where no time is known."""
    moment = f.col(time)
    latest = f.coalesce(f.date_add("written", AHEAD), f.lit("2200-01-01").cast("date"))
    return f.coalesce(
        (moment >= f.lit(EARLIEST).cast("timestamp")) & (moment < latest.cast("timestamp")),
        f.lit(False),
    )


def _to_the_millisecond(time: str) -> Column:
    # Brokers carry no more than that: rows from before and after must not differ by an hour.
    return f.timestamp_millis(f.floor((f.unix_micros(time) + 500) / 1000))
