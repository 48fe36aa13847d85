"""What goes wrong inside OpenTelemetry: told once, and of no consequence to any message."""

from __future__ import annotations

import logging


class Trouble:
    """Logs the first failure of each kind."""

    def __init__(self, logger: logging.Logger) -> None:
        self._log = logger
        self._told: set[type[Exception]] = set()

    def tell(self, error: Exception) -> None:
        """Say it, unless that was said before."""
        if type(error) not in self._told:
            self._told.add(type(error))
            self._log.error("OpenTelemetry failed; messages are not affected", exc_info=error)
