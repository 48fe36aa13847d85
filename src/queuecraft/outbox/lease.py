"""Who is at work, where several relays serve one outbox."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from queuecraft.clock import Clock
from queuecraft.model.ids import new_id
from queuecraft.outbox.database import Database
from queuecraft.outbox.executor import Executor

LENGTH = 10.0  # seconds without a sign of life, after which another relay takes over
BEATS = 4  # signs of life within that time


class Lease:
    """One relay has it, and gives a sign of life in the table now and then; the others stand by.

    Time is measured by each relay for itself, from what it sees change, so that it is no matter
    what their clocks say.
    """

    def __init__(self, database: Database, table: str, clock: Clock, log: logging.Logger) -> None:
        self._database = database
        self._table = f"{table}_relay"
        self._now = clock.monotonic
        self._log = log
        self._me = new_id()
        self._mine = False
        self._renewed = 0.0
        self._seen: tuple[str, int] | None = None
        self._seen_at = 0.0

    @property
    def held(self) -> bool:
        """Whether it is ours, and will be for a while."""
        return self._mine and self._now() - self._renewed < LENGTH / 2

    @property
    def interval(self) -> float:
        """Seconds between two signs of life."""
        return LENGTH / BEATS

    async def take(self) -> bool:
        """Get it, if nobody has it, or whoever had it seems to be dead."""
        began = self._now()
        stale = self._seen if began - self._seen_at >= LENGTH else None
        found = await self._database.run(lambda on: self._take(on, stale))
        if found != self._seen:
            self._seen, self._seen_at = found, self._now()
        was, self._mine = self._mine, found[0] == self._me
        if self._mine:
            self._renewed = began
        if was != self._mine:
            self._log.info("outbox: %s", "relaying" if self._mine else "another relay took over")
        return self._mine

    @asynccontextmanager
    async def kept(self) -> AsyncGenerator[None]:
        """Give signs of life while the block runs, and leave it to others in the end."""
        task = asyncio.create_task(self._keep())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            # Also if it is not ours as far as we know: we may have been stopped as we took it.
            with suppress(Exception):  # then they find out
                await self._database.run(self._leave)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self.interval)
            if self._mine:
                try:
                    await self.take()
                except Exception as error:  # the relay meets it too, and tells
                    self._log.debug("outbox: no sign of life could be given: %r", error)

    def _take(self, on: Executor, stale: tuple[str, int] | None) -> tuple[str, int]:
        found = self._read(on)
        if found is None:
            on.run(
                f"INSERT INTO {self._table} (name, owner, beat) VALUES ('relay', :me, 1) "
                "ON CONFLICT DO NOTHING",
                {"me": self._me},
            )
        elif found[0] in (self._me, "") or found == stale:
            on.run(
                f"UPDATE {self._table} SET owner = :me, beat = beat + 1 "
                "WHERE name = 'relay' AND owner = :owner AND beat = :beat",
                {"me": self._me, "owner": found[0], "beat": found[1]},
            )
        else:
            return found
        return self._read(on) or ("", 0)

    def _read(self, on: Executor) -> tuple[str, int] | None:
        rows = on.run(f"SELECT owner, beat FROM {self._table} WHERE name = 'relay'", {})
        return (str(rows[0][0]), int(rows[0][1])) if rows else None

    def _leave(self, on: Executor) -> None:
        on.run(
            f"UPDATE {self._table} SET owner = '' WHERE name = 'relay' AND owner = :me",
            {"me": self._me},
        )
