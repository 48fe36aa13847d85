"""A publisher that does not wait for the disk: what the test of syncing has to catch."""

from __future__ import annotations

import sys
from typing import Any

import apsw

from queuecraft.drivers.local.sqlite.database import Database
from tests.faults.publisher import begin

connect = Database.connect


def connect_carelessly(self: Database, **_: Any) -> apsw.Connection:
    return connect(self, synchronous="NORMAL")


if __name__ == "__main__":
    setattr(Database, "connect", connect_carelessly)  # noqa: B010
    begin(sys.argv[1])
