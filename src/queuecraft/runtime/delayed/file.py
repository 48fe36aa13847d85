"""A SQLite file for delayed messages alone, when the queues are elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import apsw

from queuecraft.drivers.local.sqlite.database import Database
from queuecraft.stores.sqlite import SqliteDelayedStore

R = TypeVar("R")


class OwnFile:
    """Of the same kind as that of the embedded queue, made if it is not there."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path)
        self._connection = self._database.connect(synchronous="FULL")

    async def read(self, operation: str, work: Callable[[apsw.Connection], R]) -> R:
        """Look, on one consistent view."""
        return self._database.read(self._connection, operation, work)

    async def write(self, operation: str, work: Callable[[apsw.Connection], R]) -> R:
        """Change something, in one transaction that is on the disk when it returns."""
        return await self._database.write(self._connection, operation, work)

    def close(self) -> None:
        """Let go of the file."""
        self._database.disconnect(self._connection)
        self._database.close()


class OwnFileStore(SqliteDelayedStore):
    """Messages in a file that is closed with the store."""

    def __init__(self, path: Path) -> None:
        self._own = OwnFile(path)
        super().__init__(self._own)

    async def close(self) -> None:
        self._own.close()
