"""Tells that rows are dropped: once when it begins, and once when it is over."""

from __future__ import annotations

import logging
import time
from typing import Final

from queuecraft.model.journal import Journal
from queuecraft.observers.log import printable

CALM: Final = 5
"""Flushes without a loss until it is over."""


class Dropping:
    """What the log is told of rows that are lost."""

    def __init__(self, journal: Journal, log: logging.Logger) -> None:
        self._place = printable(str(journal.path))
        self._calm = CALM * journal.flush_every
        self._log = log
        self._dropped = 0
        self._written = 0
        self._since: int | None = None  # how many were dropped when it began
        self._last = 0.0
        self._error: Exception | None = None

    def trouble(self, error: Exception) -> None:
        """Why rows are lost, or may be."""
        self._error = error

    def tell(self, written: int, dropped: int) -> None:
        """Say what has changed, if anything, after an attempt to write."""
        now = time.monotonic()
        error, self._error = self._error, None
        if dropped > self._dropped or error is not None:
            self._last = now
            if self._since is None:
                self._since = self._dropped
                why = "the disk does not keep up" if error is None else printable(str(error))
                self._log.error(
                    "the journal in %s loses rows: %s. They are counted, and nothing else is "
                    "affected; it is tried again",
                    self._place,
                    why,
                )
        elif self._since is not None and written > self._written and now - self._last >= self._calm:
            self._log.warning(
                "the journal in %s is written again; %d rows were lost",
                self._place,
                dropped - self._since,
            )
            self._since = None
        self._dropped, self._written = dropped, written
