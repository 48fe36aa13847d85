"""Delayed messages in a SQLite file: that of the embedded queue, or one of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar, runtime_checkable

import apsw

from queuecraft.failpoints import failpoint
from queuecraft.model.envelope import Outgoing
from queuecraft.model.errors import ConnectionLost, QueueError
from queuecraft.stores.base import (
    MOST_BYTES,
    NEVER,
    Added,
    Census,
    Cursor,
    DelayedStore,
    Moved,
    Notes,
    OneStepStore,
    Waiting,
    Which,
    pause,
)
from queuecraft.stores.record import decode, encode

R = TypeVar("R")

Send: TypeAlias = Callable[[Sequence[Outgoing]], Sequence[QueueError | None]]
"""Puts messages into their queues, in the transaction it is called in; why some were refused."""


class File(Protocol):
    """A SQLite file. The work may be done again if the first try did not come to pass."""

    async def read(self, operation: str, work: Callable[[apsw.Connection], R]) -> R:
        """Look, on one consistent view."""
        ...

    async def write(self, operation: str, work: Callable[[apsw.Connection], R]) -> R:
        """Change something, in one transaction that is on the disk when it returns."""
        ...


@runtime_checkable
class QueueFile(File, Protocol):
    """A SQLite file with queues in it."""

    async def write_and_send(self, operation: str, work: Callable[[apsw.Connection, Send], R]) -> R:
        """Change something and send messages, in one transaction."""
        ...


# `next` is when a message may be taken: at first when it is due, then when a hold lapses or the
# pause after a refusal is over. The triggers keep the size, since counting rows takes longer the
# more there are, and the limit is looked at with every message.
SCHEMA: Final = """
    CREATE TABLE IF NOT EXISTS shelf (
        id TEXT PRIMARY KEY,
        due REAL NOT NULL,
        next REAL NOT NULL,
        hold TEXT NOT NULL DEFAULT '',
        failures INTEGER NOT NULL DEFAULT 0,
        data BLOB NOT NULL
    );
    CREATE INDEX IF NOT EXISTS shelf_due ON shelf (due, id);
    CREATE INDEX IF NOT EXISTS shelf_next ON shelf (next, id);
    CREATE TABLE IF NOT EXISTS shelf_size (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        size INTEGER NOT NULL,
        most INTEGER NOT NULL
    );
    INSERT OR IGNORE INTO shelf_size VALUES (1, 0, 0);
    CREATE TRIGGER IF NOT EXISTS shelf_more AFTER INSERT ON shelf BEGIN
        UPDATE shelf_size SET size = size + 1, most = max(most, size + 1);
    END;
    CREATE TRIGGER IF NOT EXISTS shelf_less AFTER DELETE ON shelf BEGIN
        UPDATE shelf_size SET size = size - 1;
    END;
    CREATE TABLE IF NOT EXISTS shelf_note (name TEXT PRIMARY KEY, value TEXT NOT NULL)
        WITHOUT ROWID;
"""
NOTED: Final = "shelf_note"  # made last: where it is, all of it is

_COLUMNS = "data, id, due, failures, hold"


class SqliteDelayedStore(DelayedStore):
    """Messages in tables of their own."""

    def __init__(self, file: File) -> None:
        self._file = file

    async def open(self) -> None:
        def made(connection: apsw.Connection) -> bool:
            known = "SELECT 1 FROM sqlite_schema WHERE name = ?"
            return connection.execute(known, (NOTED,)).fetchone() is not None

        if not await self._file.read("delayed", made):
            await self._write("delayed.make", lambda connection: connection.execute(SCHEMA))

    async def close(self) -> None:
        pass

    async def _write(self, operation: str, work: Callable[[apsw.Connection], R]) -> R:
        try:
            return await self._file.write(operation, work)
        except ConnectionLost as error:
            raise _unless_full(error) from error.__cause__

    async def add(self, waiting: Waiting, limit: int) -> Added:
        id, data = waiting.message.id, encode(waiting)

        def work(connection: apsw.Connection) -> Added:
            size: int = connection.execute("SELECT size FROM shelf_size").get
            if connection.execute("SELECT 1 FROM shelf WHERE id = ?", (id,)).fetchone():
                return Added(True, size)
            if size >= limit:
                return Added(False, size)
            connection.execute(
                "INSERT INTO shelf (id, due, next, data) VALUES (?, ?, ?, ?)",
                (id, waiting.due, waiting.due, data),
            )
            return Added(True, size + 1)

        return await self._write("delayed.add", work)

    async def take(self, which: Which, hold: str, until: float) -> Sequence[Waiting]:
        def work(connection: apsw.Connection) -> list[Waiting]:
            taken = _chosen(connection, which, hold)
            connection.executemany(
                "UPDATE shelf SET hold = ?, next = ? WHERE id = ?",
                ((hold, until, each.message.id) for each in taken),
            )
            return taken

        return await self._write("delayed.take", work)

    async def renew(self, taken: Sequence[Waiting], until: float) -> Sequence[Waiting]:
        def work(connection: apsw.Connection) -> list[Waiting]:
            ours: list[Waiting] = []
            for each in taken:
                connection.execute(
                    "UPDATE shelf SET next = ? WHERE id = ? AND hold = ?",
                    (until, each.message.id, each.hold),
                )
                if connection.changes() > 0:
                    ours.append(each)
            return ours

        return await self._write("delayed.renew", work)

    async def forget(self, taken: Sequence[Waiting]) -> int:
        def work(connection: apsw.Connection) -> int:
            before = connection.total_changes()
            connection.executemany(
                "DELETE FROM shelf WHERE id = ? AND hold = ?",
                ((each.message.id, each.hold) for each in taken),
            )
            # The trigger's own change counts as well.
            return (connection.total_changes() - before) // 2

        return await self._write("delayed.forget", work)

    async def put_back(self, taken: Sequence[Waiting], *, now: float, failed: bool) -> None:
        def work(connection: apsw.Connection) -> None:
            for each in taken:
                _put_back(connection, each, now, failed=failed)

        await self._write("delayed.put_back", work)

    async def cancel(self, id: str, now: float) -> bool:
        def work(connection: apsw.Connection) -> bool:
            connection.execute(
                "DELETE FROM shelf WHERE id = ? AND (hold = '' OR next <= ?)", (id, now)
            )
            return connection.changes() > 0

        return await self._write("delayed.cancel", work)

    async def page(self, limit: int, after: Cursor) -> Sequence[Waiting]:
        def work(connection: apsw.Connection) -> list[Waiting]:
            return _read(
                connection,
                f"SELECT {_COLUMNS} FROM shelf WHERE (due, id) > (?, ?) ORDER BY due, id LIMIT ?",
                (*after, limit),
            )

        return await self._file.read("delayed.page", work)

    async def census(self, overdue_by: float) -> Census:
        def work(connection: apsw.Connection) -> Census:
            row: Any = connection.execute(
                "SELECT size, most, (SELECT count(*) FROM shelf WHERE due <= ?), "
                "(SELECT min(due) FROM shelf), (SELECT min(next) FROM shelf) FROM shelf_size",
                (overdue_by,),
            ).fetchone()
            size, most, overdue, oldest, next_at = row
            return Census(size, most, overdue, oldest, NEVER if next_at is None else next_at)

        return await self._file.read("delayed.census", work)

    async def note(self, notes: Notes) -> None:
        def work(connection: apsw.Connection) -> None:
            connection.executemany(
                "INSERT INTO shelf_note VALUES (?, ?) "
                "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                notes.put.items(),
            )
            connection.executemany(
                "INSERT INTO shelf_note VALUES (?, ?) ON CONFLICT (name) "
                "DO UPDATE SET value = CAST(value AS INTEGER) + excluded.value",
                ((name, str(count)) for name, count in notes.add.items()),
            )
            connection.executemany(
                "DELETE FROM shelf_note WHERE name = ?", ((name,) for name in notes.remove)
            )

        await self._write("delayed.note", work)

    async def notes(self) -> Mapping[str, str]:
        def work(connection: apsw.Connection) -> dict[str, str]:
            rows: Any = connection.execute("SELECT name, value FROM shelf_note").fetchall()
            return dict(rows)

        return await self._file.read("delayed.notes", work)

    async def exchange(self, name: str, value: str) -> str | None:
        def work(connection: apsw.Connection) -> str | None:
            known = "SELECT value FROM shelf_note WHERE name = ?"
            before: Any = connection.execute(known, (name,)).get
            connection.execute("INSERT OR REPLACE INTO shelf_note VALUES (?, ?)", (name, value))
            return None if before is None else str(before)

        return await self._write("delayed.exchange", work)


class SqliteQueueStore(SqliteDelayedStore, OneStepStore):
    """The same in the file of the queues: messages are moved in one transaction."""

    def __init__(self, file: QueueFile) -> None:
        super().__init__(file)
        self._queues = file

    async def move(self, which: Which) -> Sequence[Moved]:
        def work(connection: apsw.Connection, send: Send) -> list[Moved]:
            chosen = _chosen(connection, which, None)
            if not chosen:
                return []
            errors = send([each.message for each in chosen])
            failpoint("delayed.between")
            moved = [Moved(each, error) for each, error in zip(chosen, errors, strict=True)]
            connection.executemany(
                "DELETE FROM shelf WHERE id = ?",
                ((each.waiting.message.id,) for each in moved if each.error is None),
            )
            for each in moved:
                if each.error is not None:
                    _put_back(connection, each.waiting, which.now, failed=True)
            return moved

        try:
            return await self._queues.write_and_send("delayed.move", work)
        except ConnectionLost as error:
            raise _unless_full(error) from error.__cause__


def _unless_full(error: ConnectionLost) -> QueueError:
    """A full disk is no connection that is lost: opening the file again would not help."""
    if isinstance(error.__cause__, apsw.FullError):
        return QueueError(error.message, broker=error.broker, operation=error.operation)
    return error


def _chosen(connection: apsw.Connection, which: Which, hold: str | None) -> list[Waiting]:
    """What is to be taken, with the hold it is to have, or the one it has."""
    if which.due_by is None:
        found = _read(
            connection,
            f"SELECT {_COLUMNS} FROM shelf WHERE next <= ? ORDER BY next, id LIMIT ?",
            (which.now, which.limit),
            hold,
        )
        return sorted(found, key=lambda each: each.cursor)
    return _read(
        connection,
        f"SELECT {_COLUMNS} FROM shelf WHERE (due, id) > (?, ?) AND due <= ? "
        "AND (hold = '' OR next <= ?) ORDER BY due, id LIMIT ?",
        (*which.after, which.due_by, which.now, which.limit),
        hold,
    )


def _read(
    connection: apsw.Connection,
    query: str,
    values: tuple[float | str, ...],
    hold: str | None = None,
) -> list[Waiting]:
    found: list[Waiting] = []
    size = 0
    row: Any
    for row in connection.execute(query, values):
        data, id, due, failures, held = row
        size += len(data) if isinstance(data, bytes) else 0
        if found and size > MOST_BYTES:
            break
        found.append(decode(data, id, due, failures, held if hold is None else hold))
    return found


def _put_back(connection: apsw.Connection, taken: Waiting, now: float, *, failed: bool) -> None:
    failures = taken.failures + failed
    connection.execute(
        "UPDATE shelf SET hold = '', failures = ?, next = ? WHERE id = ? AND hold = ?",
        (failures, now + pause(failures) if failed else now, taken.message.id, taken.hold),
    )
