"""Claims in a SQLite file: for all processes of one machine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import apsw

from queuecraft.stores.claims.base import CLAIMED, Answer, Busy, ClaimStore, Done
from queuecraft.stores.sqlite import File

# A claim of nobody is done.
SCHEMA: Final = """
    CREATE TABLE IF NOT EXISTS claims (
        key TEXT PRIMARY KEY,
        owner TEXT,
        until REAL NOT NULL,
        value BLOB NOT NULL DEFAULT x''
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS claims_until ON claims (until);
"""
LAST: Final = "claims_until"  # made last: where it is, all of it is
CLEANED: Final = 100  # rows that are over and removed with a claim, and two for each key of it


class SqliteClaimStore(ClaimStore):
    """Claims in a table of their own."""

    def __init__(self, file: File, now: Callable[[], float]) -> None:
        self._file = file
        self._now = now

    async def open(self) -> None:
        def made(connection: apsw.Connection) -> bool:
            known = "SELECT 1 FROM sqlite_schema WHERE name = ?"
            return connection.execute(known, (LAST,)).fetchone() is not None

        if not await self._file.read("claims", made):
            await self._file.write("claims.make", lambda connection: connection.execute(SCHEMA))

    async def close(self) -> None:
        pass

    async def claim(self, keys: Sequence[str], owner: str, lease: float) -> Sequence[Answer]:
        def work(connection: apsw.Connection) -> list[Answer]:
            now = self._now()
            connection.execute(
                "DELETE FROM claims WHERE key IN "
                "(SELECT key FROM claims WHERE until <= ? ORDER BY until LIMIT ?)",
                (now, CLEANED + 2 * len(keys)),
            )
            return [_claim(connection, key, owner, now, lease) for key in keys]

        return await self._file.write("claims.claim", work)

    async def complete(
        self, values: Mapping[str, bytes], owner: str, ttl: float
    ) -> Collection[str]:
        def work(connection: apsw.Connection) -> list[str]:
            now = self._now()
            refused: list[str] = []
            for key, value in values.items():
                by = _holder(connection, key, now)
                if by is _NOBODY or by == owner:
                    _put(connection, key, None, now + ttl, value)
                elif by is not None:
                    refused.append(key)
            return refused

        return await self._file.write("claims.complete", work)

    async def release(self, keys: Sequence[str], owner: str) -> None:
        def work(connection: apsw.Connection) -> None:
            connection.executemany(
                "DELETE FROM claims WHERE key = ? AND owner = ?", ((key, owner) for key in keys)
            )

        await self._file.write("claims.release", work)

    async def renew(self, keys: Sequence[str], owner: str, lease: float) -> Collection[str]:
        def work(connection: apsw.Connection) -> list[str]:
            now = self._now()
            lost: list[str] = []
            for key in keys:
                connection.execute(
                    "UPDATE claims SET until = ? WHERE key = ? AND owner = ? AND until > ?",
                    (now + lease, key, owner, now),
                )
                if not connection.changes():
                    lost.append(key)
            return lost

        return await self._file.write("claims.renew", work)


_NOBODY: Final = object()


def _row(connection: apsw.Connection, key: str, now: float) -> Any:
    """Owner, until when, value: of a key that is not free."""
    query = "SELECT owner, until, value FROM claims WHERE key = ? AND until > ?"
    return connection.execute(query, (key, now)).fetchone()


def _holder(connection: apsw.Connection, key: str, now: float) -> object:
    """Who holds a key; None if it is done."""
    row = _row(connection, key, now)
    return _NOBODY if row is None else row[0]


def _claim(connection: apsw.Connection, key: str, owner: str, now: float, lease: float) -> Answer:
    row = _row(connection, key, now)
    if row is not None and row[0] is None:
        return Done(row[2])
    if row is not None and row[0] != owner:
        return Busy(row[1] - now)
    _put(connection, key, owner, now + lease, b"")
    return CLAIMED


def _put(
    connection: apsw.Connection, key: str, owner: str | None, until: float, value: bytes
) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?)", (key, owner, until, value)
    )
