"""One Spark for all tests of the pipeline: it takes seconds to start."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from queuecraft.pipeline.session import spark_session
from tests.pipeline.small import JVM, SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PATIENCE = 180  # seconds for a test: the first of them waits until Spark has started


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(PATIENCE))


@pytest.fixture(scope="session")
def spark() -> Generator[SparkSession]:
    session = spark_session(name="tests", settings={**JVM, **SETTINGS})
    yield session
    session.stop()
