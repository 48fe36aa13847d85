"""The heartbeat of a session: a thread that says it lives, as long as its loop turns."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Final

LEASE: Final = 30.0  # seconds after which a session that is silent has lost what it holds
BEAT: Final = LEASE / 6
PATIENCE: Final = 1.0  # seconds to wait for the thread at the end


class Pulse:
    """Calls `renew` now and then from a thread of its own, so that a handler that keeps the loop
    busy for a few seconds does not cost its session all it holds. A loop that stands still for
    longer than a lease is as good as dead, and is not renewed."""

    def __init__(self, renew: Callable[[], None], ended: Callable[[], None]) -> None:
        self._renew = renew
        self._ended = ended
        self._turned = monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="queuecraft-pulse", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def turned(self) -> None:
        """The loop is alive."""
        self._turned = monotonic()

    def stop(self) -> None:
        """End, and wait a moment until it has."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(PATIENCE)

    def _run(self) -> None:
        try:
            while not self._stopped.wait(BEAT):
                if monotonic() - self._turned < LEASE:
                    self._renew()
        finally:
            self._ended()
