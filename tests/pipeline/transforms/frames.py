"""DataFrames for tests of transforms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from queuecraft.pipeline.schemas import MESSAGES, SEGMENTS, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame(spark: SparkSession, table: Table, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Rows of a table; columns that are not named are null."""
    return spark.createDataFrame([tuple(map(row.get, table.names)) for row in rows], table.spark)


def segment(spark: SparkSession, *rows: Mapping[str, Any], date: str = "2026-03-02") -> DataFrame:
    """Rows as they are read from a segment of that day."""
    from pyspark.sql import functions as f

    path = f"file:///data/lake/segments/date={date}/a.parquet"
    columns = {"date": f.lit(date), "file_path": f.lit(path)}
    return frame(spark, SEGMENTS, rows).withColumns(columns)


def bronze(spark: SparkSession, *rows: Mapping[str, Any]) -> DataFrame:
    """Rows of bronze that have no problem, without their birth."""
    return frame(spark, MESSAGES, [{"segment": "date=2026-03-02/a.parquet", **row} for row in rows])


def silver(spark: SparkSession, *rows: Mapping[str, Any]) -> DataFrame:
    """The same, of silver."""
    return bronze(spark, *rows).drop("problem")


def collected(rows: DataFrame) -> list[dict[str, Any]]:
    """The rows, their times in UTC: Spark gives those of this machine, without a zone."""
    return [
        {
            name: value.astimezone(UTC) if isinstance(value, datetime) else value
            for name, value in each.asDict(recursive=True).items()
        }
        for each in rows.collect()
    ]
