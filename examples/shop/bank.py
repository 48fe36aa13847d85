"""The bank: a service of somebody else, slow, and not always heard of again."""

import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path


class Bank:
    """Moves money, once for each reference, as payment providers do with an idempotency key.

    Now and then the money has moved and the answer is lost: whoever asked has to ask again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def create(self) -> None:
        """Open the account."""
        with closing(self._connect()) as db, db:
            db.execute(
                "CREATE TABLE IF NOT EXISTS moves"
                " (reference TEXT PRIMARY KEY, order_id TEXT, cents INTEGER)"
            )

    def move(self, reference: str, order_id: str, cents: int) -> None:
        """Move money from a customer to the shop, or back if it is less than nothing."""
        time.sleep(0.02)
        with closing(self._connect()) as db, db:
            move = "INSERT INTO moves VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
            db.execute(move, (reference, order_id, cents))
        if random.random() < 0.15:
            raise TimeoutError("the bank did not answer")

    def statement(self) -> list[tuple[str, int]]:
        """Every move of money: for which order, and how much."""
        with closing(self._connect()) as db:
            return db.execute("SELECT order_id, cents FROM moves ORDER BY rowid").fetchall()

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=30)
