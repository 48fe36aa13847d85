"""Claims in a SQLite file that is opened for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from queuecraft.runtime.delayed.file import OwnFile
from queuecraft.stores.claims.sqlite import SqliteClaimStore


class FileClaimStore(SqliteClaimStore):
    """Claims in a file that is closed with the store."""

    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        self._own = OwnFile(path)
        super().__init__(self._own, now)

    async def close(self) -> None:
        self._own.close()
