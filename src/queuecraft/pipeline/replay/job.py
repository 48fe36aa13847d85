"""Work of Spark's that Ctrl-C ends, and does not leave behind."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


def interruptible(spark: SparkSession, work: Callable[[], T]) -> T:
    """Do the work in a thread. Interrupted amid a call to Spark, the thread of a signal could not
    even tell it to stop, and tasks would go on sending when nobody knows of them any more."""
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(work)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                spark.interruptAll()
            raise
