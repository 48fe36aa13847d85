"""An outbox on whatever connection an application has."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiosqlite
import psycopg
import pytest
import sqlalchemy as sa
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from queuecraft import ConfigError, Event, PayloadError, Queue, QueueCraft, Settings
from queuecraft.outbox import Outbox
from tests.outbox.conftest import connected

number = Event("number", int)
outbox = Outbox()


def driven(url: str, sqlite: str = "pysqlite") -> str:
    """The URL as SQLAlchemy has it."""
    return url.replace("sqlite:", f"sqlite+{sqlite}:").replace("postgresql:", "postgresql+psycopg:")


@contextmanager
def engine_of(url: str) -> Generator[sa.Engine]:
    engine = sa.create_engine(driven(url))
    try:
        yield engine
    finally:
        engine.dispose()


def count(url: str) -> int:
    with connected(url) as shop:
        return outbox.waiting(shop)


def test_a_session_of_sqlalchemy(database: str) -> None:
    with engine_of(database) as engine:
        with Session(engine) as session, session.begin():
            outbox.publish(session, number, 1)
        with Session(engine) as session:
            outbox.publish(session, number, 2)
            session.rollback()
        scoped = scoped_session(sessionmaker(engine))
        outbox.send(scoped, Queue("numbers", int), 3)
        scoped.commit()
        scoped.remove()
    assert count(database) == 2


def test_a_connection_of_sqlalchemy(database: str) -> None:
    with engine_of(database) as engine:
        with engine.begin() as connection:
            outbox.publish(connection, number, 1)
            assert outbox.waiting(connection) == 1
        with pytest.raises(ConfigError, match="a session or a connection"):
            outbox.publish(engine, number, 1)
    assert count(database) == 1


async def test_an_async_session_and_connection_of_sqlalchemy(database: str) -> None:
    engine = create_async_engine(driven(database, "aiosqlite"))
    async with AsyncSession(engine) as session, session.begin():
        await outbox.publish_async(session, number, 1)
        with pytest.raises(ConfigError, match="await publish_async"):
            outbox.publish(session, number, 1)
    async with engine.begin() as connection:
        await outbox.send_async(connection, "numbers", 2)
    async with AsyncSession(engine) as session:
        await outbox.publish_async(session, number, 3)
        await session.rollback()
    await engine.dispose()
    assert count(database) == 2


async def test_an_async_connection_of_psycopg(postgres_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(postgres_url) as shop:
        for statement in outbox.ddl("postgresql").split(";\n"):
            if statement:
                await shop.execute(statement.encode())
        await outbox.publish_async(shop, number, 1)
        await shop.commit()
        await outbox.publish_async(shop, number, 2)
        await shop.rollback()
    assert count(postgres_url) == 1


async def test_a_connection_of_aiosqlite(tmp_path: Path) -> None:
    async with aiosqlite.connect(tmp_path / "shop.db") as shop:
        await shop.executescript(outbox.ddl("sqlite"))
        await outbox.publish_async(shop, number, 1)
        await shop.commit()
    assert count(f"sqlite:///{tmp_path}/shop.db") == 1


def test_rows_may_be_what_the_application_likes(postgres_url: str) -> None:
    connect: Any = psycopg.connect
    with connect(postgres_url, row_factory=dict_row) as shop:
        outbox.create(shop)
        outbox.publish(shop, number, 1)
        assert outbox.waiting(shop) == 1
    lite = sqlite3.connect(":memory:")
    lite.row_factory = sqlite3.Row
    outbox.create(lite)
    outbox.publish(lite, number, 1)
    assert outbox.waiting(lite) == 1
    lite.close()


def test_outside_of_a_transaction_nothing_is_written(postgres_url: str) -> None:
    lite = sqlite3.connect(":memory:", isolation_level=None)
    outbox.create(lite)
    with pytest.raises(ConfigError, match="in no transaction"):
        outbox.publish(lite, number, 1)
    lite.execute("BEGIN")
    outbox.publish(lite, number, 1)
    lite.execute("COMMIT")
    lite.close()
    with psycopg.connect(postgres_url, autocommit=True) as shop:
        outbox.create(shop)
        with pytest.raises(ConfigError, match="in no transaction"):
            outbox.publish(shop, number, 1)
        with shop.transaction():
            outbox.publish(shop, number, 1)


def test_a_session_that_commits_each_statement_is_noticed(database: str) -> None:
    with engine_of(database) as engine:
        at_once = engine.execution_options(isolation_level="AUTOCOMMIT")
        with Session(at_once) as session, pytest.raises(ConfigError, match="in no transaction"):
            outbox.publish(session, number, 1)
        with at_once.connect() as one, pytest.raises(ConfigError, match="in no transaction"):
            outbox.publish(one, number, 1)
    assert count(database) == 0


def test_a_bad_message_fails_in_the_transaction(database: str) -> None:
    wrong: Any = "three"
    five: Any = 5
    unknown: Any = {"later": 5}
    with connected(database) as shop:
        with pytest.raises(PayloadError, match="expected int"):
            outbox.publish(shop, number, wrong)
        with pytest.raises(ConfigError, match="unknown option 'later'"):
            outbox.publish(shop, number, 1, **unknown)
        with pytest.raises(PayloadError, match=r"\\x00"):
            outbox.publish(shop, number, 1, key="a\0b")
        with pytest.raises(PayloadError, match="limit is 10"):
            Outbox(Settings(max_message_bytes=10)).publish(shop, "text", "x" * 20)
        with pytest.raises(TypeError, match="publish takes an Event"):
            outbox.publish(shop, five, 1)
        with pytest.raises(ConfigError, match="not through an exchange"):
            outbox.send(shop, "numbers", 1, exchange="shop")
        shop.commit()
        assert outbox.waiting(shop) == 0


def test_something_that_is_no_connection_is_refused() -> None:
    with pytest.raises(ConfigError, match="a int is no database connection"):
        outbox.publish(5, number, 1)
    with pytest.raises(ConfigError, match="expected a name"):
        Outbox(table="orders; DROP TABLE orders")


def test_the_tables_may_be_part_of_the_applications_own(database: str) -> None:
    mine = Outbox(table="shop_outbox")
    metadata = sa.MetaData()
    table = mine.table(metadata)
    with engine_of(database) as engine:
        metadata.create_all(engine)
        with engine.begin() as connection:
            mine.create(connection)  # they are there
            mine.publish(connection, number, 1)
            columns = {each["name"] for each in sa.inspect(connection).get_columns("shop_outbox")}
            theirs = sa.inspect(connection).get_columns("queuecraft_outbox")
        assert columns == {each["name"] for each in theirs} == set(table.columns.keys())


@pytest.mark.parametrize("kind", ["engine", "async engine", "function"])
async def test_a_relay_reads_by_an_engine_or_a_function(kind: str, database: str) -> None:
    mine = Outbox(Settings(serializer="msgpack", compression="gzip", compression_threshold=0))
    with connected(database) as shop:
        for each in range(3):
            mine.publish(shop, number, each)
        shop.commit()
    async with QueueCraft() as qc:
        await qc.admin.declare("numbers", "number")
        match kind:
            case "engine":
                with engine_of(database) as engine:
                    await mine.relay(qc, engine, once=True)
            case "async engine":
                async_engine = create_async_engine(driven(database, "aiosqlite"))
                await mine.relay(qc, async_engine, once=True)
                await async_engine.dispose()
            case _:

                def connect() -> Any:
                    if database.startswith("sqlite"):
                        return sqlite3.connect(database.removeprefix("sqlite:///"))
                    return psycopg.connect(database)

                await mine.relay(qc, connect, once=True)
        assert [each.payload for each in await qc.admin.peek("numbers")] == [0, 1, 2]
    assert count(database) == 0
