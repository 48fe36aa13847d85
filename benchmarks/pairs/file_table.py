"""A bare table in `sqlite3`, asked every millisecond: what one would write without a library."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from benchmarks.pairs.in_process import awaited
from benchmarks.pairs.pair import Pair
from benchmarks.sent import PREFETCH, Handle, Publish, Sent, decode, encode

PAUSE = 0.001


def connect(url: str, synchronous: str) -> sqlite3.Connection:
    path = url.removeprefix("local://")
    connection = sqlite3.connect(f"{path}.bare", isolation_level=None, timeout=10)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={synchronous}")
    connection.execute("CREATE TABLE IF NOT EXISTS message (id INTEGER PRIMARY KEY, body BLOB)")
    return connection


@asynccontextmanager
async def publisher(url: str) -> AsyncGenerator[Publish]:
    connection = connect(url, "FULL")

    def insert(at: float) -> None:
        connection.execute("INSERT INTO message (body) VALUES (?)", (encode(Sent(at)),))

    yield awaited(insert)
    connection.close()


@asynccontextmanager
async def worker(url: str, handle: Handle) -> AsyncGenerator[None]:
    connection = connect(url, "NORMAL")

    async def consume() -> None:
        while True:
            found = connection.execute(
                "SELECT id, body FROM message ORDER BY id LIMIT ?", (PREFETCH,)
            ).fetchall()
            for _, body in found:
                handle(decode(body).at)
            if found:
                connection.execute("DELETE FROM message WHERE id <= ?", (found[-1][0],))
            await asyncio.sleep(0 if found else PAUSE)

    consuming = asyncio.create_task(consume())
    yield
    consuming.cancel()
    await asyncio.wait([consuming])
    connection.close()


PAIRS = {"sqlite3": Pair(publisher=publisher, worker=worker, flight=1)}
