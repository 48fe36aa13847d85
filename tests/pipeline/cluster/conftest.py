"""A cluster and a Spark Connect server, started by the first test that asks for them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from tests.pipeline.cluster.standalone import Cluster


@pytest.fixture(scope="session")
def shop_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Says where the connection `shop` leads, to those that run far from the test."""
    return tmp_path_factory.mktemp("connections") / "shop.toml"


@pytest.fixture
def shop(shop_file: Path) -> Callable[[str], None]:
    """Lets the connection `shop` lead to a URL."""

    def lead(url: str) -> None:
        shop_file.write_text(f'url = "{url}"\n')

    return lead


@pytest.fixture(scope="session")
def cluster(shop_file: Path) -> Generator[Cluster]:
    with Cluster({"QUEUECRAFT_CONNECTION_SHOP_CONFIG": str(shop_file)}) as started:
        yield started
