"""The database of an outbox, as a relay uses it: small transactions, beside the event loop."""

from __future__ import annotations

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from queuecraft.model.errors import ConfigError
from queuecraft.outbox.executor import Executor, executor, is_async, maker_of

R = TypeVar("R")

TIMEOUT = 30  # seconds to wait for a lock of SQLite, and for PostgreSQL to let us in


class Database(ABC):
    """Does work in transactions, one at a time."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    @staticmethod
    def of(source: Any) -> Database:
        """The database behind a URL, an engine of SQLAlchemy, or a function that connects.

        >>> Database.of("mysql://shop")
        Traceback (most recent call last):
        queuecraft.ConfigError: the database has to be a URL as sqlite:///shop.db or ...
        """
        if isinstance(source, str):
            return FromConnection(_connecting(source))
        if maker_of(source) == "sqlalchemy":
            return FromAsyncEngine(source) if is_async_engine(source) else FromEngine(source)
        if callable(source):
            return FromConnection(source)
        raise _no_database()

    async def run(self, work: Callable[[Executor], R]) -> R:
        """Do it, and commit."""
        async with self._turn:
            return await self._run(work)

    @abstractmethod
    async def _run(self, work: Callable[[Executor], R]) -> R: ...

    @abstractmethod
    async def close(self) -> None:
        """Let go of what we have opened."""


class FromConnection(Database):
    """A connection of our own, in a thread of its own, made again when it breaks."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        super().__init__()
        self._connect = connect
        self._connection: Any = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="queuecraft-outbox")

    async def _run(self, work: Callable[[Executor], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._do, work)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        self._thread.shutdown(wait=False)

    def _do(self, work: Callable[[Executor], R]) -> R:
        if self._connection is None:
            self._connection = self._connect()
        try:
            result = work(executor(self._connection))
            self._connection.commit()
        except BaseException:
            self._disconnect()  # which rolls back, and is right whatever went wrong
            raise
        return result

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.rollback()
            with suppress(Exception):
                connection.close()


class FromEngine(Database):
    """An engine of SQLAlchemy, used in a thread."""

    def __init__(self, engine: Any) -> None:
        super().__init__()
        self._engine = engine
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="queuecraft-outbox")

    async def _run(self, work: Callable[[Executor], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._do, work)

    async def close(self) -> None:
        self._thread.shutdown(wait=False)

    def _do(self, work: Callable[[Executor], R]) -> R:
        with self._engine.begin() as connection:
            return work(executor(connection))


class FromAsyncEngine(Database):
    """An async engine of SQLAlchemy."""

    def __init__(self, engine: Any) -> None:
        super().__init__()
        self._engine = engine

    async def _run(self, work: Callable[[Executor], R]) -> R:
        async with self._engine.begin() as connection:
            result: R = await connection.run_sync(lambda sync: work(executor(sync)))
            return result

    async def close(self) -> None:
        """The engine is the application's."""


def is_async_engine(engine: Any) -> bool:
    """Whether it is an async engine of SQLAlchemy."""
    return hasattr(engine, "sync_engine") or is_async(engine)


def _connecting(url: str) -> Callable[[], Any]:
    """The function that connects to the database of a URL, which is never shown: it may hold a
    password."""
    scheme, found, rest = url.partition("://")
    kind = scheme.partition("+")[0].lower()  # which driver SQLAlchemy would take is no matter here
    if found and kind == "sqlite":
        path = unquote(rest.partition("?")[0]).removeprefix("/")
        if not path or path == ":memory:":
            raise ConfigError(
                "a database in memory has no outbox that others could see; name a file"
            )
        return lambda: _existing(path)
    if found and kind in ("postgresql", "postgres"):
        try:
            import psycopg
        except ImportError:
            raise ConfigError(
                "a URL of PostgreSQL needs psycopg: pip install 'psycopg[binary]'; or give an "
                "engine of SQLAlchemy"
            ) from None
        target = f"postgresql://{rest}"
        return lambda: psycopg.connect(
            target,
            connect_timeout=TIMEOUT,
            application_name="queuecraft outbox",
            prepare_threshold=None,  # which a pooler in between may not stand
        )
    raise _no_database()


class MissingFile(Exception):
    """The file of a database is not there; says where it was looked for, and what to do."""

    @classmethod
    def at(cls, path: Path) -> MissingFile:
        """The error for a path.

        >>> str(MissingFile.at(Path("/nowhere/shop.db")))
        "there is no database '/nowhere/shop.db', nor its folder; an outbox is kept in the ..."
        """
        place = path.absolute()  # so that a person sees where it was looked for
        nor = "" if place.parent.is_dir() else ", nor its folder"
        return cls(
            f"there is no database {str(place)!r}{nor}; an outbox is kept in the database of your "
            "application: name that, or start the application first if it makes the file"
        )


def _existing(path: str) -> sqlite3.Connection:
    """A file that is not there is a mistake in the path: it would be made, and stay empty."""
    try:
        with open(path, "rb"):
            pass
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFile.at(Path(path)) from None
    return sqlite3.connect(path, timeout=TIMEOUT)


def _no_database() -> ConfigError:
    return ConfigError(
        "the database has to be a URL as sqlite:///shop.db or postgresql://host/shop, an engine "
        "of SQLAlchemy, or a function that gives a connection"
    )
