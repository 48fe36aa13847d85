"""The embedded queue: no server to run."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from queuecraft.clock import Clock
from queuecraft.drivers.base import Driver
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.model.errors import ConfigError


def drivers(url: str, clock: Clock) -> Sequence[Driver]:
    """The driver for a `local://` URL."""
    parts = urlsplit(url)
    if parts.netloc or parts.path not in ("", "/") or parts.query:
        raise ConfigError("the embedded queue lives in memory for now; its URL is 'local://' alone")
    return (MemoryDriver(clock),)
