"""A configuration file, read whole, but not without bound."""

from __future__ import annotations

from pathlib import Path

from queuecraft.model.errors import ConfigError

MAX_BYTES = 1024 * 1024


def read(path: Path) -> str | None:
    """The text of a file; None if there is none."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:  # a path may hold what no path can
        reason = getattr(error, "strerror", None) or "it cannot be a path"
        raise ConfigError(f"{pictured(path)} cannot be read: {reason}") from None
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{pictured(path)} has more than {MAX_BYTES} bytes; is it the right one?")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{pictured(path)} is not UTF-8 in line {line}; save it so") from None


def pictured(path: Path) -> str:
    """How an error speaks of a file.

    >>> pictured(Path("queuecraft.toml"))
    'queuecraft.toml'
    """
    text = str(path)
    return text if text.isprintable() else repr(text)
