"""How many delayed messages wait, how that changes, and how the cleanups went."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from queuecraft.model.delayed import CleanupPolicy

Status: TypeAlias = Literal["healthy", "warning", "critical"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupResult:
    """What one cleanup did.

    >>> CleanupResult(cleaned=3, seconds=0.1, size=7, policy="deliver").cleaned
    3
    """

    cleaned: int
    seconds: float
    size: int
    """How many wait now."""
    policy: CleanupPolicy
    refused: int = 0
    """Overdue messages that their queue would not take; they still wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupStats:
    """All cleanups so far, of every process that shares the store.

    >>> CleanupStats(runs=4, failures=1).success_rate
    0.75
    >>> CleanupStats().success_rate
    1.0
    """

    runs: int = 0
    failures: int = 0
    cleaned_total: int = 0
    cleaned_last: int = 0
    last_run_at: datetime | None = None
    last_duration: float | None = None
    last_error: str | None = None
    """Why the last one failed; None if it did not."""

    @property
    def success_rate(self) -> float:
        """The share of cleanups that succeeded; 1 as long as there was none."""
        return (self.runs - self.failures) / self.runs if self.runs else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedStats:
    """The state of `qc.delayed`.

    >>> DelayedStats(size=8000, max_size=9000, average_size=7500.0, limit=10_000).share
    0.8
    """

    size: int
    max_size: int
    """The most that ever waited."""
    average_size: float
    """Over the minutes in `history`."""
    limit: int
    status: Status = "healthy"
    oldest_due: datetime | None = None
    overdue: int = 0
    """How many are past their time by more than the grace period."""
    growth_per_minute: float = 0.0
    abnormal_growth: bool = False
    history: tuple[tuple[datetime, int], ...] = ()
    """Minutes, and how many waited at the end of each."""
    cleanup: CleanupStats = field(default_factory=CleanupStats)

    @property
    def share(self) -> float:
        """How full it is, from 0 to 1."""
        return self.size / self.limit
