"""The shop's database, and the outbox in it."""

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from examples.shop.events import Order
from queuecraft import Event
from queuecraft.outbox import Outbox

STOCK: Final = {"teapot": 1000, "lamp": 100, "globe": 2}

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, product TEXT, cents INTEGER);
CREATE TABLE IF NOT EXISTS ends (order_id TEXT, state TEXT);
CREATE TABLE IF NOT EXISTS stock (product TEXT PRIMARY KEY, pieces INTEGER);
CREATE TABLE IF NOT EXISTS parcels (order_id TEXT, product TEXT);
CREATE TABLE IF NOT EXISTS steps (order_id TEXT, step TEXT, PRIMARY KEY (order_id, step));
"""


class Page:
    """A transaction: what is written and what is published, all of it or nothing."""

    def __init__(self, db: sqlite3.Connection, outbox: Outbox) -> None:
        self._db = db
        self._outbox = outbox

    def write(self, statement: str, *values: object) -> int:
        """Change some rows; how many."""
        return self._db.execute(statement, values).rowcount

    def begin(self, step: str, order: Order) -> bool:
        """Whether this step of the order's saga was never done before. It is now, if the
        transaction is committed."""
        done = "INSERT INTO steps VALUES (?, ?) ON CONFLICT DO NOTHING"
        return self.write(done, order.id, step) == 1

    def publish(self, event: Event[Order], order: Order) -> None:
        """Have the event published, once the transaction is committed."""
        self._outbox.publish(self._db, event, order)


class Books:
    """One SQLite file for the three services, so that one relay is enough. No service touches the
    tables of another: each could have a database of its own, with a relay for each."""

    def __init__(self, path: Path, outbox: Outbox) -> None:
        self.url = f"sqlite:///{path}"
        self.outbox = outbox
        self._path = path

    def create(self) -> None:
        """Make the tables and fill the shelves, if that was not done before."""
        with closing(self._connect()) as db:
            db.executescript(SCHEMA)
            self.outbox.create(db)
            db.executemany("INSERT OR IGNORE INTO stock VALUES (?, ?)", STOCK.items())
            db.commit()

    @contextmanager
    def page(self) -> Generator[Page]:
        """A transaction: committed when the block ends, undone when it fails."""
        with closing(self._connect()) as db, db:
            db.execute("BEGIN IMMEDIATE")  # wait for other writers now, not half-way
            yield Page(db, self.outbox)

    def read(self, query: str) -> list[tuple[Any, ...]]:
        """The rows that a query gives."""
        with closing(self._connect()) as db:
            return db.execute(query).fetchall()

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=30)
