"""A Spark that knows the source, and a connection by name that leads where a test says."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from queuecraft.pipeline import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOP = "QUEUECRAFT_CONNECTION_SHOP_CONFIG"


@pytest.fixture(scope="session")
def shop_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Says where the connection `shop` leads. A file that is written anew, and not a variable,
    because workers with other variables would be other processes, started for each test."""
    return tmp_path_factory.mktemp("connections") / "shop.toml"


@pytest.fixture(scope="session")
def source(spark: SparkSession, shop_file: Path) -> SparkSession:
    os.environ[SHOP] = str(shop_file)
    try:
        register(spark)
    finally:
        del os.environ[SHOP]
    return spark


@pytest.fixture
def shop(shop_file: Path) -> Callable[..., str]:
    """Lets the connection `shop` lead to a URL."""

    def lead(url: str, **settings: object) -> str:
        lines = [f'url = "{url}"', *(f"{name} = {value!r}" for name, value in settings.items())]
        shop_file.write_text("\n".join(lines).replace("'", '"'))
        return url

    return lead


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    return f"local://{tmp_path}/queue.db"
