"""Notes in the file: a table that comes with the first of them, and disturbs no older release."""

from __future__ import annotations

from pathlib import Path

import apsw

from queuecraft.drivers.local.sqlite import SqliteDriver
from queuecraft.drivers.local.sqlite.schema import MIGRATIONS


def look(path: Path, query: str) -> object:
    connection = apsw.Connection(str(path))
    try:
        return connection.execute(query).get
    finally:
        connection.close()


async def test_the_table_is_made_by_the_first_note_and_is_no_new_format(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    made = "SELECT count(*) FROM sqlite_schema WHERE name = 'note'"
    one, other = SqliteDriver(path), SqliteDriver(path)
    await one.open()
    await other.open()
    try:
        assert await other.announced() == {}
        await one.announce("a1", b"", ttl=60)
        assert look(path, made) == 0
        await one.announce("a1", b"here", ttl=60)
        assert look(path, made) == 1
        assert await other.announced() == {"a1": b"here"}
        assert look(path, "PRAGMA user_version") == len(MIGRATIONS)
    finally:
        await one.close()
        await other.close()


async def test_notes_whose_time_is_over_do_not_pile_up(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    driver = SqliteDriver(path)
    await driver.open()
    try:
        for number in range(20):
            await driver.announce(f"n-{number}", b"here", ttl=-1)
        await driver.announce("last", b"here", ttl=60)
        assert look(path, "SELECT count(*) FROM note") == 1
    finally:
        await driver.close()
