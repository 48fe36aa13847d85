"""Databases that an outbox may be kept in."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from queuecraft.outbox import Outbox
from tests.brokers.fixtures import for_a_run
from tests.brokers.postgres import Postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """The PostgreSQL of this run."""
    yield from for_a_run(Postgres)


@pytest.fixture
def postgres_url(postgres: Postgres) -> Iterator[str]:
    """A URL into a schema that is this test's alone."""
    postgres.start()
    with postgres.schema() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database with the tables of an outbox, and one of a shop's own."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/shop.db"
        (tmp_path / "shop.db").touch()
    else:
        url = str(request.getfixturevalue("postgres_url"))
    with connected(url) as shop:
        Outbox().create(shop)
        shop.cursor().execute("CREATE TABLE orders (id TEXT)")
        shop.commit()
    return url


@contextlib.contextmanager
def connected(url: str) -> Generator[Any]:
    """A connection of an application to its database."""
    shop: Any
    if url.startswith("sqlite"):
        shop = sqlite3.connect(url.removeprefix("sqlite:///"))
    else:
        shop = psycopg.connect(url)
    try:
        yield shop
    finally:
        shop.close()
