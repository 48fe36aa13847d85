"""This process among those that share the file: its heartbeat, its bell, and the dead it buries."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import apsw

from queuecraft.drivers.local.sqlite import leases
from queuecraft.drivers.local.sqlite.database import Database, rows
from queuecraft.drivers.local.sqlite.pulse import LEASE, Pulse
from queuecraft.model.errors import QueueError


class Session:
    """Begun with the first consumer of a process, ended with the driver."""

    def __init__(self, database: Database, now: Callable[[], float], name: str) -> None:
        self.name = name
        self._database = database
        self._now = now
        self._connection: apsw.Connection | None = None  # the thread's own
        self._pulse = Pulse(self._renew, self._close)

    def begin(self, connection: apsw.Connection) -> None:
        """Be known to the others."""
        connection.execute(
            "INSERT INTO session VALUES (?, ?, ?)", (self.name, os.getpid(), self._now() + LEASE)
        )

    def start(self) -> None:
        """Let the heart beat."""
        self._pulse.start()

    def turned(self) -> None:
        """The loop is alive."""
        self._pulse.turned()

    def stop(self) -> None:
        """Let the heart beat no more."""
        self._pulse.stop()

    # -- in the thread -------------------------------------------------------------------------

    def _renew(self) -> None:
        def renew(connection: apsw.Connection) -> None:
            connection.execute(
                "UPDATE session SET expires = ? WHERE name = ?", (self._now() + LEASE, self.name)
            )

        try:
            if self._connection is None:
                self._connection = self._database.connect(synchronous="NORMAL")
                self._connection.set_busy_timeout(5000)  # a thread may wait
            self._database.write_now(self._connection, "renew", renew)
        except QueueError:
            pass  # there is time for a few more tries; the loop meets the same trouble, and says so

    def _close(self) -> None:
        if self._connection is not None:
            self._database.disconnect(self._connection)


def known(connection: apsw.Connection) -> dict[str, float]:
    """All sessions, and when the lease of each runs out."""
    return dict(rows(connection, "SELECT name, expires FROM session"))


def bury(connection: apsw.Connection, names: Iterable[str]) -> dict[int, int]:
    """End sessions; what their consumers held is ready again. How many, by queue."""
    returned: dict[int, int] = {}
    for name in names:
        for number, queue in rows(
            connection, "SELECT number, queue FROM consumer WHERE session = ?", (name,)
        ):
            returned[queue] = returned.get(queue, 0) + leases.give_back(connection, number)
        connection.execute("DELETE FROM consumer WHERE session = ?", (name,))
        connection.execute("DELETE FROM session WHERE name = ?", (name,))
    return returned
