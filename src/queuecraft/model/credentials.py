"""Who one is to the broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from os import PathLike
from typing import TypeAlias

from queuecraft.model.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user name, if the broker wants one, and a password that is never shown.

    >>> Credentials("ada", "s3cret")
    Credentials(username='ada')
    """

    username: str | None
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        for name, value in (("username", self.username or ""), ("password", self.password)):
            if not isinstance(value, str):
                raise ConfigError(f"Credentials: {name} is {type(value).__name__}, expected str")


Provider: TypeAlias = Callable[[], Credentials | Awaitable[Credentials]]
"""Asked for credentials at each connect; it may be a coroutine function."""

Source: TypeAlias = Provider | str | PathLike[str]
"""Where current credentials come from: a provider, or the path of a file."""
