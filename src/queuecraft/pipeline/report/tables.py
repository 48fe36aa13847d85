"""The tables of a lake as Spark reads them, also those that are not there yet."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from queuecraft.model.errors import QueueError
from queuecraft.pipeline.jobs.tables import schema_by_hours

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from queuecraft.pipeline.lake import Lake
    from queuecraft.pipeline.schemas import Table


def table(spark: SparkSession, lake: Lake, table: Table, *, by_hours: bool = False) -> DataFrame:
    """A table with the columns it should have, empty if nothing was written yet. `by_hours` gives
    the `date` and `hour` of its folders as well."""
    from pyspark.errors import AnalysisException

    schema = schema_by_hours(table) if by_hours else table.spark
    place = (lake.tables / table.name).absolute()  # where Spark runs, here is elsewhere
    try:
        # Columns that a newer lake or its partitions add are left out.
        found = spark.read.schema(schema).parquet(str(place)).select(*schema.names)
        _ = found.schema  # Spark Connect looks only when it is asked
        return found
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND" or place.is_dir():  # here, and not there
            raise
        return spark.createDataFrame([], schema)


@contextmanager
def reading(lake: Lake) -> Generator[None]:
    """Say in our words what Spark has against the tables that are read in here."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark.", "py4j.")):
            raise
        raise QueueError(
            f"Spark could not read the tables of {lake.root}: {_said(error)}. If a job is at work "
            "on the lake, try again when it has ended"
        ) from error


def _said(error: Exception) -> str:
    """The first line of what it says; an error of Java's has it beside a stack."""
    java = getattr(error, "java_exception", None)
    text = str(error) if java is None else str(java.getMessage())
    return text.strip().partition("\n")[0].rstrip(".")
