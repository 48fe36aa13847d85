"""Named places where a test may stop the world: the instant before an ack, after a send."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

_armed: dict[str, Callable[[], None]] = {}


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def failpoint(name: str) -> None:
    """Do what a test asked for here; nothing otherwise. Called per batch, never per message."""
    if _armed and (action := _armed.get(name)) is not None:
        action()


def arm(name: str, action: Callable[[], None] = _kill) -> None:
    """Act at the named place from now on; by default, as `kill -9` would."""
    _armed[name] = action


def disarm(name: str) -> None:
    """Let the named place be."""
    _armed.pop(name, None)


# A killed child process is armed from outside: QUEUECRAFT_FAILPOINT=move.after_send
if _from_outside := os.environ.get("QUEUECRAFT_FAILPOINT"):
    arm(_from_outside)
