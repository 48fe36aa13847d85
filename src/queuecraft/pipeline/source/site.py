"""What only the driver knows of the Spark it runs on, and readers and writers have to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Site:
    """Found out when the source is registered, and sent along with it.

    >>> Site(local=True, slots=2)
    Site(local=True, slots=2, filters=False)
    """

    local: bool = False
    """Whether everything runs on this machine."""
    slots: int | None = None
    """How many tasks run at once, if that is known."""
    filters: bool = False
    """Whether Spark hands filters over; a reader may only take them if it does."""

    @classmethod
    def of(cls, spark: SparkSession) -> Site:
        """That of a session."""
        from pyspark.errors import PySparkAttributeError, PySparkNotImplementedError

        filters = spark.conf.get("spark.sql.python.filterPushdown.enabled", "false") == "true"
        try:
            context = spark.sparkContext
        except (PySparkAttributeError, PySparkNotImplementedError):  # a remote one has none
            master, slots = spark.conf.get("spark.master", ""), None
        else:
            master, slots = context.master, context.defaultParallelism
        return cls((master or "").startswith("local"), slots, filters)
