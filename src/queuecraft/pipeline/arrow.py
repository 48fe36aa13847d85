"""Arrow, which a lake is written with; it comes with an extra of its own."""

from __future__ import annotations

from importlib.util import find_spec

from queuecraft.model.errors import ConfigError


def require_arrow() -> None:
    """Raise `ConfigError` unless Arrow is there to be imported.

    >>> require_arrow()
    """
    if find_spec("pyarrow") is None:
        raise ConfigError(
            "a lake is read and written with pyarrow, which is not installed; "
            "pip install 'queuecraft[spark]'"
        )
