"""The queue in a file: no server, shared by processes, and there after a power cut."""

from __future__ import annotations

from queuecraft.drivers.local.sqlite.driver import SqliteDriver

__all__ = ["SqliteDriver"]
