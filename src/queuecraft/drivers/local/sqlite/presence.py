"""Notes in the file: a table of their own, made when the first is put up.

It is no migration: a process of an older release, which knows nothing of notes, can use the file.
"""

from __future__ import annotations

import apsw

from queuecraft.drivers.local.sqlite.database import rows, value

_TABLE = """
    CREATE TABLE IF NOT EXISTS note (
        name TEXT PRIMARY KEY,
        note BLOB NOT NULL,
        expires REAL NOT NULL
    ) WITHOUT ROWID
"""


def put(connection: apsw.Connection, name: str, note: bytes, *, expires: float, now: float) -> None:
    """Put a note up in place of an older one; an empty one takes it down."""
    if not _made(connection):
        if not note:
            return
        connection.execute(_TABLE)
    connection.execute("DELETE FROM note WHERE expires <= ? OR name = ?", (now, name))
    if note:
        connection.execute("INSERT INTO note VALUES (?, ?, ?)", (name, note, expires))


def up(connection: apsw.Connection, now: float) -> dict[str, bytes]:
    """Those whose time is not over."""
    if not _made(connection):
        return {}
    return dict(rows(connection, "SELECT name, note FROM note WHERE expires > ?", (now,)))


def _made(connection: apsw.Connection) -> bool:
    asked = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'note'"
    return bool(value(connection, asked))
