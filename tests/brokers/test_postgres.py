"""The PostgreSQL of the tests: a schema for each, and nothing left behind."""

from __future__ import annotations

import psycopg
import pytest

from tests.brokers.fixtures import do_without
from tests.brokers.installation import Unavailable
from tests.brokers.postgres import VARIABLE, Postgres


def test_a_private_server_gives_schemas_and_leaves_nothing_behind() -> None:
    server = Postgres()
    try:
        server.start()
    except Unavailable as reason:
        do_without(f"PostgreSQL: {reason}, or name a server in {VARIABLE}")
    with server:
        folder = server._own.folder
        with server.schema() as one, server.schema() as other:
            with psycopg.connect(one) as connection:
                connection.execute("CREATE TABLE orders (id TEXT)")
            with psycopg.connect(other) as connection:
                (found,) = connection.execute("SELECT to_regclass('orders')").fetchone() or ("",)
                assert found is None
        url = server.url
    assert not folder.exists()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url, connect_timeout=2)
