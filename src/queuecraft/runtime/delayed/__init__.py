"""Delayed messages that can be seen, limited, cancelled and cleaned up: `qc.delayed`."""

from __future__ import annotations

from queuecraft.runtime.delayed.delayed import Delayed
from queuecraft.runtime.delayed.message import DelayedMessage, DelayedPage
from queuecraft.runtime.delayed.stats import CleanupResult, CleanupStats, DelayedStats, Status

__all__ = [
    "CleanupResult",
    "CleanupStats",
    "Delayed",
    "DelayedMessage",
    "DelayedPage",
    "DelayedStats",
    "Status",
]
