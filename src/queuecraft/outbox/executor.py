"""Running statements on whatever connection an application has: DB-API, SQLAlchemy, Django."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from queuecraft.model.errors import ConfigError

Dialect: TypeAlias = Literal["sqlite", "postgresql"]
Values: TypeAlias = Mapping[str, object]
Rows: TypeAlias = Sequence[Sequence[Any]]

_NAME = re.compile(r":([a-z_0-9]+)")
_IDLE = 0  # what psycopg says of a connection that is in no transaction


@dataclass(frozen=True, slots=True)
class Executor:
    """A connection that statements with `:name` parameters are run on."""

    dialect: Dialect
    run: Callable[[str, Values], Rows]


def executor(connection: Any) -> Executor:
    """The executor of a connection.

    >>> import sqlite3
    >>> connection = sqlite3.connect(":memory:")
    >>> executor(connection).run("SELECT :a + 1", {"a": 1})
    [(2,)]
    >>> connection.close()
    >>> executor("sqlite:///shop.db")
    Traceback (most recent call last):
    queuecraft.ConfigError: a str is no database connection; give one of sqlite3, psycopg, ...
    """
    match maker_of(connection):
        case "sqlalchemy":
            return _of_sqlalchemy(connection)
        case "sqlite3":
            return Executor("sqlite", lambda sql, values: _run(connection, sql, values))
        case "psycopg" | "psycopg2":
            return Executor("postgresql", lambda sql, values: _run(connection, _py(sql), values))
        case "django":
            dialect = _known(connection.vendor)
            return Executor(dialect, lambda sql, values: _run(connection, _py(sql), values))
        case _:
            raise _no_connection(connection)


def maker_of(connection: Any) -> str | None:
    """The library that a connection, or an engine, is of.

    >>> maker_of(5) is None
    True
    """
    known = ("sqlalchemy", "sqlite3", "psycopg", "psycopg2", "django", "aiosqlite")
    for kind in type(connection).__mro__:
        root = kind.__module__.partition(".")[0]
        if root in known:
            return root
    return None


def is_async(connection: Any) -> bool:
    """Whether what it does has to be awaited."""
    if maker_of(connection) == "sqlalchemy":
        return hasattr(connection, "run_sync")
    return inspect.iscoroutinefunction(getattr(connection, "commit", None))


async def run_async(connection: Any, sql: str, values: Values) -> None:
    """Run a statement that gives nothing on a connection of psycopg or aiosqlite."""
    maker = maker_of(connection)
    if maker not in ("psycopg", "aiosqlite"):
        raise _no_connection(connection)
    cursor = await connection.execute(_py(sql) if maker == "psycopg" else sql, values)
    await cursor.close()


def refuse_without_transaction(connection: Any) -> None:
    """What is written outside of a transaction is there at once, whatever becomes of the rest."""
    alone: bool
    match maker_of(connection):
        case "sqlite3" | "aiosqlite":
            alone = not connection.in_transaction and (
                connection.isolation_level is None or getattr(connection, "autocommit", -1) is True
            )
        case "psycopg" | "psycopg2":
            alone = connection.autocommit and connection.info.transaction_status == _IDLE
        case "django":
            alone = connection.get_autocommit() and not connection.in_atomic_block
        case "sqlalchemy":
            is_session = hasattr(connection, "get_bind")
            inner = (connection.connection() if is_session else connection).connection
            inner = inner.dbapi_connection
            if maker_of(inner) != "sqlalchemy":  # an async one, which is dressed up as another
                refuse_without_transaction(inner)
            return
        case _:
            return
    if alone:
        raise ConfigError(
            "the connection is in no transaction, so the message would be published whatever "
            "becomes of your own changes; begin one first",
            operation="outbox",
        )


def _of_sqlalchemy(connection: Any) -> Executor:
    from sqlalchemy import text

    bind = connection.get_bind() if hasattr(connection, "get_bind") else connection
    if not hasattr(connection, "execute"):
        raise ConfigError("give a session or a connection of the engine", operation="outbox")

    def run(sql: str, values: Values) -> Rows:
        result = connection.execute(text(sql), values)
        return [tuple(row) for row in result] if result.returns_rows else []

    return Executor(_known(bind.dialect.name), run)


def _run(connection: Any, sql: str, values: Values) -> Rows:
    cursor = connection.cursor()
    try:
        _plain_rows(connection, cursor)
        cursor.execute(sql, values)
        rows: Rows = cursor.fetchall() if cursor.description else []
        return rows
    finally:
        cursor.close()


def _plain_rows(connection: Any, cursor: Any) -> None:
    """Rows are tuples for us, whatever the application has its connection make of them."""
    match maker_of(connection):
        case "sqlite3":
            cursor.row_factory = None
        case "psycopg":
            from psycopg.rows import tuple_row

            cursor.row_factory = tuple_row
        case _:
            pass


def _py(sql: str) -> str:
    return _NAME.sub(r"%(\1)s", sql)


def _known(name: str) -> Dialect:
    match name:
        case "sqlite" | "postgresql":
            return name
        case _:
            raise ConfigError(f"an outbox is kept in SQLite or PostgreSQL, not in {name}")


def _no_connection(given: object) -> ConfigError:
    return ConfigError(
        f"a {type(given).__name__} is no database connection; give one of sqlite3, psycopg, "
        "SQLAlchemy or Django",
        operation="outbox",
    )
