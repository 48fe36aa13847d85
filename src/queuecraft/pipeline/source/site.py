"""What only the driver knows of the Spark it runs on, and readers and writers have to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPECULATION = "spark.speculation"


@dataclass(frozen=True, slots=True)
class Site:
    """Found out when the source is registered, and sent along with it.

    >>> Site(local=True, slots=2)
    Site(local=True, slots=2, filters=False, speculates=False)
    """

    local: bool = False
    """Whether everything runs on this machine."""
    slots: int | None = None
    """How many tasks run at once, if that is known."""
    filters: bool = False
    """Whether Spark hands filters over; a reader may only take them if it does."""
    speculates: bool = False
    """Whether Spark starts copies of slow tasks beside them."""

    @classmethod
    def of(cls, spark: SparkSession) -> Site:
        """That of a session."""
        from pyspark.errors import PySparkAttributeError, PySparkNotImplementedError

        filters = spark.conf.get("spark.sql.python.filterPushdown.enabled", "false") == "true"
        try:
            context = spark.sparkContext
        except (PySparkAttributeError, PySparkNotImplementedError):  # a remote one has none
            master, slots = spark.conf.get("spark.master", "") or "", None
            speculation = spark.conf.get(SPECULATION, None)
        else:
            master, slots = context.master or "", context.defaultParallelism
            speculation = context.getConf().get(SPECULATION)  # a session may say what is not so
        return cls(master.startswith("local"), slots, filters, _speculates(master, speculation))


def _speculates(master: str, said: str | None) -> bool:
    """Whether it does what it was told to: never within one process.

    >>> _speculates("spark://head:7077", "True"), _speculates("local[*]", "true")
    (True, False)
    """
    alone = master == "local" or master.startswith("local[")
    return not alone and (said or "").lower() == "true"
