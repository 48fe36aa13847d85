"""A small lake twice: what is made of it elsewhere has to be what is made of it here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from queuecraft.pipeline.jobs.ingest import ingest
from queuecraft.pipeline.lake import Lake
from queuecraft.pipeline.schemas import PARTS, TABLES
from tests.pipeline.rows import business, in_segments, table_rows
from tests.pipeline.small import for_small_data

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def small_lake(folder: Path) -> tuple[Lake, list[dict[str, Any]]]:
    """A lake with two segments, always the same, and its rows."""
    lake, rows = Lake.at(folder), business(20)
    in_segments(lake, rows, 2)
    return lake, rows


def ingested_here(spark: SparkSession, folder: Path) -> Lake:
    """The same lake, with the tables that a Spark on this machine makes."""
    lake, _ = small_lake(folder)
    with for_small_data(spark):
        ingest(spark, lake)
    return lake


def same_tables(one: Lake, other: Lake) -> None:
    """Both have the same rows in all tables, and there are some."""
    for table in (*TABLES, *PARTS):
        assert table_rows(one, table) == table_rows(other, table), table.name
    assert table_rows(one, TABLES[0])
