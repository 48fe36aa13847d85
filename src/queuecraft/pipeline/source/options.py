"""The options of the source, checked while the query is planned."""

from __future__ import annotations

from collections.abc import Mapping

from queuecraft.model import address
from queuecraft.model.checks import nearest, shown
from queuecraft.model.errors import ConfigError

SPARKS = frozenset({"checkpointlocation", "queryname"})
"""Spark hands its own over too."""

SECRETS = frozenset({"url", "user", "username", "password", "credentials", "token"})

_FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class Options:
    """What a user has written with `.option(name, value)`; names in any case.

    >>> Options({"Queue": "billing", "limit": "50"}, ("queue", "limit")).number("limit", 1)
    50.0
    >>> Options({"quue": "billing"}, ("queue", "limit"))
    Traceback (most recent call last):
    queuecraft.ConfigError: the source has no option 'quue' here; did you mean 'queue'?
    """

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        for name, value in self._given.items():
            _check_secret(name, value)
            if name not in known and name not in SPARKS:
                hint = nearest(name, known)
                raise ConfigError(f"the source has no option {shown(name)} here; {hint}")

    def text(self, name: str) -> str | None:
        """A text, if it was given; empty is an error."""
        value = self._given.get(name)
        if value is not None and not value.strip():
            raise ConfigError(f"option {name!r} is empty; leave it out, or say which")
        return value

    def number(self, name: str, least: float) -> float | None:
        """A number, if it was given."""
        value = self.text(name)
        if value is None:
            return None
        try:
            number = float(value)
        except ValueError:
            number = float("nan")
        if not least <= number < float("inf"):
            raise ConfigError(f"option {name}={shown(value)}: expected a number from {least:g} on")
        return number

    def whole(self, name: str, least: int) -> int | None:
        """A whole number, if it was given."""
        number = self.number(name, least)
        if number is not None and not number.is_integer():
            raise ConfigError(f"option {name}={number:g}: expected a whole number")
        return None if number is None else int(number)

    def flag(self, name: str, *, otherwise: bool) -> bool:
        """Yes or no."""
        value = self.text(name)
        if value is None:
            return otherwise
        if value.lower() not in _FLAGS:
            raise ConfigError(f"option {name}={shown(value)}: expected true or false")
        return _FLAGS[value.lower()]

    def one_of(self, *names: str) -> str:
        """Which of these was given; exactly one has to be."""
        given = [name for name in names if self.text(name) is not None]
        if len(given) != 1:
            said = f"; {' and '.join(map(repr, given))} are both there" if given else ""
            raise ConfigError(f"say one of the options {', '.join(map(repr, names))}{said}")
        return given[0]


def _check_secret(name: str, value: str) -> None:
    """Spark prints options in plans, logs and on its pages."""
    if name in SECRETS or ("://" in value and any(address.userinfo(value))):
        raise ConfigError(
            f"option {shown(name)} has an address or a secret in it, and Spark shows options in "
            "its plans and logs; name a connection instead, .option('connection', 'shop'), and "
            "set QUEUECRAFT_CONNECTION_SHOP_URL where the executors run"
        )
