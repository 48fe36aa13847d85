"""The file as somebody else sees it: its tables, and a transaction that keeps others waiting."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from queuecraft.drivers.base import Outgoing


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    """What a query finds."""
    connection = apsw.Connection(str(path))
    try:
        return list(connection.execute(query))
    finally:
        connection.close()


@contextmanager
def locked(path: Path) -> Generator[apsw.Connection]:
    """Nobody else can write to the file."""
    connection = apsw.Connection(str(path))
    try:
        connection.set_busy_timeout(5000)
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    finally:
        connection.close()


def scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder for the many files of a property: in memory where there is such a place, because
    the disk makes each of them wait, and power cuts are no part of it."""
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None)


def messages(queue: str, *ids: str, **fields: Any) -> list[Outgoing]:
    """Messages straight to a queue."""
    return [Outgoing(b"", id, queue=queue, **fields) for id in ids]
