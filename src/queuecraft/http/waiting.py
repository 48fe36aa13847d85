"""Delayed messages as the pages of the HTTP service see them."""

from __future__ import annotations

import asyncio
from datetime import datetime

from pydantic import BaseModel, ConfigDict

from queuecraft.app import QueueCraft
from queuecraft.model.errors import ConfigError, QueueError
from queuecraft.runtime.delayed import Delayed, Status

PATIENCE = 3.0  # seconds for the broker, or for the store, to answer


class CleanupReport(BaseModel):
    """All cleanups so far."""

    model_config = ConfigDict(from_attributes=True)

    runs: int
    failures: int
    success_rate: float
    cleaned_total: int
    cleaned_last: int
    last_run_at: datetime | None
    last_duration: float | None
    last_error: str | None


class DelayedReport(BaseModel):
    """How many delayed messages wait, and how that changes."""

    model_config = ConfigDict(from_attributes=True)

    size: int
    max_size: int
    average_size: float
    limit: int
    status: Status
    oldest_due: datetime | None
    overdue: int
    growth_per_minute: float
    abnormal_growth: bool
    cleanup: CleanupReport


class DelayedHistory(DelayedReport):
    """The same, with how many waited at the end of each minute."""

    history: list[tuple[datetime, int]]


class WaitingRoom:
    """Where delayed messages wait. However many ask how full it is, the store is asked once."""

    def __init__(self, qc: QueueCraft) -> None:
        self._qc = qc
        self._asking: asyncio.Future[DelayedHistory] | None = None

    @property
    def delayed(self) -> Delayed:
        """To add, list, cancel and clean up."""
        return self._qc.delayed

    async def stats(self) -> DelayedHistory:
        """How full it is. Raises what the store raises, or `TimeoutError`."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask())
            self._asking.add_done_callback(_heard)
        return await asyncio.shield(self._asking)

    async def look(self) -> tuple[DelayedReport | None, str | None]:
        """How full it is, or why that is not known. Neither, where none can be delayed: a broker
        that needs a store for it was given none."""
        try:
            stats = await self.stats()
        except ConfigError:
            return None, None
        except QueueError as error:
            return None, error.message
        except TimeoutError:
            return None, f"delayed messages: no answer within {PATIENCE:g} s"
        return DelayedReport.model_validate(stats), None

    async def _ask(self) -> DelayedHistory:
        async with asyncio.timeout(PATIENCE):
            return DelayedHistory.model_validate(
                await self._qc.delayed.stats(), from_attributes=True
            )


def _heard(asked: asyncio.Future[DelayedHistory]) -> None:
    """Whoever asked may be gone; an error nobody waits for is no error."""
    if not asked.cancelled():
        asked.exception()
