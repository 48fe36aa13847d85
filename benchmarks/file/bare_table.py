"""A bare loop over `sqlite3`: insert, claim and delete, with the pragmas of QueueCraft's file.

A narrow claim table beside the messages, because claiming in the message's own row rewrites it:
measured, that is a third slower.
"""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import msgspec

from benchmarks.harness import Case, Measurement
from benchmarks.order import Order, WrongCount, orders

TABLES = """
PRAGMA journal_mode=WAL;
CREATE TABLE message (id INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE claim (id INTEGER PRIMARY KEY, owner INTEGER);
"""


def connect(path: Path, synchronous: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA synchronous={synchronous}")
    connection.execute("PRAGMA wal_autocheckpoint=4000")
    return connection


def insert(connection: sqlite3.Connection, first: int, bodies: list[bytes]) -> None:
    numbers = range(first, first + len(bodies))
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany("INSERT INTO message VALUES (?, ?)", zip(numbers, bodies, strict=True))
    connection.executemany("INSERT INTO claim VALUES (?, NULL)", ((each,) for each in numbers))
    connection.execute("COMMIT")


def claim(connection: sqlite3.Connection, limit: int) -> list[tuple[int, bytes]]:
    connection.execute("BEGIN IMMEDIATE")
    found = connection.execute(
        "SELECT claim.id, body FROM claim JOIN message ON message.id = claim.id "
        "WHERE owner IS NULL ORDER BY claim.id LIMIT ?",
        (limit,),
    ).fetchall()
    connection.executemany(
        "UPDATE claim SET owner = 1 WHERE id = ?", ((number,) for number, _ in found)
    )
    connection.execute("COMMIT")
    return found


def delete(connection: sqlite3.Connection, found: list[tuple[int, bytes]]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for table in ("claim", "message"):
        connection.executemany(
            f"DELETE FROM {table} WHERE id = ?", ((number,) for number, _ in found)
        )
    connection.execute("COMMIT")


def loop(messages: int, *, batch: int) -> Measurement:
    bodies = [msgspec.json.encode(order) for order in orders(Order, messages)]
    handled = 0
    with TemporaryDirectory(prefix="queuecraft-benchmark-") as folder:
        path = Path(folder, "queue.db")
        publishing, consuming = connect(path, "FULL"), connect(path, "NORMAL")
        publishing.executescript(TABLES)
        started = perf_counter()
        for start in range(0, messages, batch):
            insert(publishing, start, bodies[start : start + batch])
            found = claim(consuming, batch)
            delete(consuming, found)
            handled += len(found)
        seconds = perf_counter() - started
        publishing.close()
        consuming.close()
    if handled != messages:
        raise WrongCount(f"handled {handled} messages of {messages}")
    return Measurement(messages, seconds)


def case(batch: int, name: str) -> Case:
    return Case(name=name, group="file", contender="sqlite3", run=partial(loop, batch=batch))


CASES = (
    case(500, "batches of 500"),
    case(100, "batches of 100"),
    case(1, "one at a time"),
)
