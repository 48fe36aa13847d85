"""The tables of a lake as jobs read and replace them: by hours, or whole."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from queuecraft.pipeline.jobs.hours import Hour, folder_of, hour_in
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.schemas import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SETTINGS = {
    # Spark's own default is a type that no statistics are kept of, and that others misread.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.session.timeZone": "UTC",
    # An object with the same name twice is JSON, if not good manners.
    "spark.sql.variant.allowDuplicateKeys": "true",
}


def prepare(spark: SparkSession) -> None:
    """Let a session write tables as a lake has them."""
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)


def read_hours(spark: SparkSession, lake: Lake, table: Table, hours: Iterable[Hour]) -> DataFrame:
    """The rows of some hours, with their `date` and `hour`. Other folders are not even listed."""
    schema = schema_by_hours(table)
    root = lake.tables / table.name
    found = [str(place) for hour in hours if (place := root / folder_of(hour)).is_dir()]
    if not found:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).option("basePath", str(root)).parquet(*found)


def schema_by_hours(table: Table) -> StructType:
    """The columns of a table, and those that are the names of its folders."""
    return table.spark.add("date", "date").add("hour", "integer")


def read(spark: SparkSession, lake: Lake, table: Table) -> DataFrame:
    """The rows of all hours."""
    return read_hours(spark, lake, table, hours_of(lake, table))


def replace_hours(frame: DataFrame, lake: Lake, table: Table, hours: Iterable[Hour]) -> None:
    """Let some hours of a table have these rows, and no others. The frame has `date` and `hour`."""
    root = lake.tables / table.name
    before = {place: _files(place) for hour in hours if (place := root / folder_of(hour)).is_dir()}
    (
        frame.select(*table.names, "date", "hour")
        .write.mode("overwrite")
        .option("partitionOverwriteMode", "dynamic")
        .partitionBy("date", "hour")
        .parquet(str(root))
    )
    for place, files in before.items():  # Spark leaves alone what it has no rows for
        if files & _files(place):
            shutil.rmtree(place)


def replace(frame: DataFrame, lake: Lake, table: Table) -> None:
    """Let a table that has no hours have these rows."""
    frame.select(*table.names).coalesce(1).write.mode("overwrite").parquet(
        str(lake.tables / table.name)
    )


def hours_of(lake: Lake, table: Table) -> list[Hour]:
    """The hours that a table has."""
    return sorted(
        hour_in(place.parent.name.removeprefix("date="), place.name.removeprefix("hour="))
        for place in (lake.tables / table.name).glob("date=*/hour=*")
    )


def sweep_tables(lake: Lake) -> None:
    """Remove what jobs that died have left; nothing reads it."""
    for pattern in ("*/.spark-staging-*", "*/_temporary"):
        for place in lake.tables.glob(pattern):
            shutil.rmtree(place, ignore_errors=True)


def parquet_files(folder: Path) -> Iterator[Path]:
    """The files with rows in them."""
    return (path for path in folder.rglob("*.parquet") if not path.name.startswith("."))


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in parquet_files(folder)}
