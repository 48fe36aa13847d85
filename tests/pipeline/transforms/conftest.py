"""Settings for small data."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.small import for_small_data

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module", autouse=True)
def quick(spark: SparkSession) -> Generator[None]:
    with for_small_data(spark):
        yield
