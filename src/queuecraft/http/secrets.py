"""The tokens of the HTTP service: from keywords, the environment or a `.env` file."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from queuecraft.config import dotenv
from queuecraft.config.file import read
from queuecraft.model.errors import ConfigError

log = logging.getLogger("queuecraft.http")

SHORT = 16  # characters; fewer can be guessed

VARIABLES = {
    "token": "QUEUECRAFT_TOKEN",
    "read_token": "QUEUECRAFT_READ_TOKEN",
    "cron_secret": "CRON_SECRET",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """Who may do what: `token` for operators, `read_token` for those who look, `cron_secret` for
    the clock that calls `POST /cron/cleanup`.

    >>> Secrets(token="a-long-operator-token")
    Secrets()
    """

    token: str | None = field(default=None, repr=False)
    read_token: str | None = field(default=None, repr=False)
    cron_secret: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        given: dict[str, str] = {}
        for name in (each.name for each in fields(self)):
            secret: object = getattr(self, name)
            if secret is None:
                continue
            if not isinstance(secret, str) or not secret.isascii() or not secret.isprintable():
                raise ConfigError(f"{_named(name)} must be printable ASCII, as a header carries it")
            if not secret.strip() or secret != secret.strip():
                raise ConfigError(f"{_named(name)} is blank, or has blanks around it")
            for other, taken in given.items():
                if taken == secret:
                    raise ConfigError(
                        f"{_named(name)} and {_named(other)} are the same; whoever has one would "
                        "have the other's rights"
                    )
            given[name] = secret
            if len(secret) < SHORT:
                log.warning(
                    "%s is short enough to be guessed; make one of %d characters or more, "
                    "for example with: openssl rand -hex 32",
                    _named(name),
                    SHORT,
                )

    @property
    def opens_anything(self) -> bool:
        """Whether anybody could sign in."""
        return self.token is not None or self.read_token is not None

    @classmethod
    def found(
        cls,
        *,
        environ: Mapping[str, str] | None = None,
        env_file: str = ".env",
        **given: str | None,
    ) -> Secrets:
        """Each from, the first that says it: the keyword, the environment, a `.env` file.

        >>> Secrets.found(environ={"QUEUECRAFT_TOKEN": "from-the-environment"}).token
        'from-the-environment'
        """
        environ = os.environ if environ is None else environ
        lines, _ = dotenv.parse(read(Path(env_file)) or "")
        values: dict[str, str | None] = {}
        for name, variable in VARIABLES.items():
            line = lines.get(variable)
            said = environ.get(variable) or (line.value if line is not None else "")
            values[name] = given.get(name) if given.get(name) is not None else said.strip() or None
        return cls(**values)


def _named(name: str) -> str:
    return f"{name}= ({VARIABLES[name]})"
