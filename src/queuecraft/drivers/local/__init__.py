"""The embedded queue: no server to run, in memory or in a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from queuecraft.drivers.base import Driver
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.drivers.target import Target
from queuecraft.model.errors import ConfigError
from queuecraft.model.masking import masked


def drivers(target: Target) -> Sequence[Driver]:
    """The driver for a `local://` URL."""
    path = path_of(target.url)
    if path is None:
        return (MemoryDriver(target.clock),)
    from queuecraft.drivers.local.sqlite import SqliteDriver  # nothing to load for one in memory

    return (SqliteDriver(path, target.clock),)


def path_of(url: str) -> Path | None:
    """The file of a `local://` URL; None when it names none, and the queue lives in memory.

    >>> str(path_of("local:///data/queue.db")), str(path_of("local://./queue.db"))
    ('/data/queue.db', 'queue.db')
    >>> path_of("local://") is None
    True
    """
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        raise ConfigError(
            "a local:// URL takes no options; write # and ? in a file name as %23 and %3F"
        )
    if not parts.netloc:
        if parts.path in ("", "/"):
            return None
    elif parts.netloc not in (".", "..", "~") or parts.path in ("", "/"):
        raise ConfigError(
            f"{masked(url)!r} names no file: the embedded queue has no host; use local:// for one "
            "in memory, local:///data/queue.db or local://./queue.db for one in a file"
        )
    path = unquote(parts.netloc + parts.path)
    if "\0" in path or path.endswith("/"):
        raise ConfigError(f"{masked(url)!r} names no file; give one such as local:///data/queue.db")
    return Path(path).expanduser()
