"""The names a setting goes by in files and in the environment: its own, and those of others."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from queuecraft.model.checks import FLAG, FROM_ONE, FROM_ZERO, NAME, SECONDS, Check, number, or_none
from queuecraft.model.delayed import CHECKS as DELAYED
from queuecraft.model.delayed import DEFAULTS as DELAYED_DEFAULTS
from queuecraft.model.policy import Retry
from queuecraft.model.settings import CHECKS, default

PREFIX = "QUEUECRAFT_"

FOREIGN = frozenset({"CONFIG", "TOKEN", "READ_TOKEN", "FAILPOINT", "SOAK", "OUTBOX"})
"""Variables with our prefix that are no settings."""


def _same(value: Any) -> Any:
    return value


def _home(path: str) -> Path:
    return Path(os.path.expanduser(path))  # Path's own raises where there is no home


@dataclass(frozen=True, slots=True)
class Name:
    """A name of a setting, and what a value given by this name has to be.

    >>> NAMES["shutdown.timeout"].key, NAMES["shutdown.timeout"].convert(1500)
    ('shutdown_timeout', 1.5)
    """

    path: str
    key: str
    check: Check
    default: str
    convert: Callable[[Any], Any] = _same
    meant: str = ""  # the path perhaps meant by who gives a value that will not do

    @property
    def variable(self) -> str:
        """The environment variable of this name.

        >>> NAMES["retry.max_retries"].variable
        'QUEUECRAFT_RETRY_MAX_RETRIES'
        """
        return PREFIX + self.path.upper().replace(".", "_")


# -- the settings' own names -----------------------------------------------------------------------

_OWN = {"redis_mode": "redis.mode", "redis_delivery": "redis.delivery"}

_PATH = or_none(
    Check(
        lambda value: isinstance(value, str) and bool(value.strip()) and "\0" not in value,
        "the path of a file",
        "'/run/secrets/broker'",
    )
)

_RETRY: Mapping[str, Check] = {
    "max_retries": FROM_ZERO,
    "initial_delay": number(0, "seconds from 0 on", "0.5"),
    "factor": number(1, "a number from 1 on", "2"),
    "max_delay": number(0, "seconds from 0 on", "30"),
    "jitter": number(0, "a share from 0 to 1", "0.2", most=1),
}

_MEANT = {"retry": "retry.max_retries", "dead_letter": "dead_letter.queue"}


def _own() -> list[Name]:
    names = [
        Name(
            _OWN.get(name, name),
            _OWN.get(name, name),
            check,
            default(name),
            _home if name == "journal" else _same,
        )
        for name, check in CHECKS.items()
        if name not in ("retry", "dead_letter", "delayed", "credentials")
    ]
    names.append(Name("credentials_file", "credentials", _PATH, "None", _home))
    defaults = {each.name: each.default for each in fields(Retry)}
    for name, check in _RETRY.items():
        names.append(Name(f"retry.{name}", f"retry.{name}", check, repr(defaults[name])))
    for name in ("exchange", "queue", "routing_key"):
        path = f"dead_letter.{name}"
        names.append(Name(path, path, NAME, "made from the original"))
    for name, check in DELAYED.items():
        path = f"delayed.{name}"
        names.append(Name(path, path, check, DELAYED_DEFAULTS[name]))
    for group in ("retry", "dead_letter"):
        on = f"{group}.enabled"
        names += [Name(on, on, FLAG, "true"), Name(group, on, FLAG, "true", meant=_MEANT[group])]
    return names


# -- the names other documents use -----------------------------------------------------------------


_ABOVE = replace(SECONDS, expected="milliseconds above 0", example="1500")
_LEAST = number(0, "milliseconds from 0 on", "1500")


def _seconds(milliseconds: float) -> float:
    return milliseconds / 1000


_ALIASES: Mapping[str, str] = {
    "queue.type": "type",
    "queue.url": "url",
    "queue.prefetch": "prefetch",
    "queue.batch_size": "batch_size",
    "queue.compression": "compression",
    "retry.max_attempts": "retry.max_retries",
    "retry.backoff_multiplier": "retry.factor",
    "retry.backoff_factor": "retry.factor",
    "dead_letter_queue.enabled": "dead_letter.enabled",
    "redis_mode": "redis.mode",
    "redis_delivery": "redis.delivery",
}


def _converted() -> list[Name]:
    return [
        Name("retry.initial_delay_ms", "retry.initial_delay", _LEAST, "1000", _seconds),
        Name("shutdown.timeout", "shutdown_timeout", _ABOVE, "30000", _seconds),
        Name("shutdown.timeout_ms", "shutdown_timeout", _ABOVE, "30000", _seconds),
        Name("message_ttl", "ttl", or_none(_ABOVE), "None", _seconds),
        # Deliveries in all, the first one included.
        Name("max_deliveries", "retry.max_retries", FROM_ONE, "4", lambda total: total - 1),
    ]


def _all() -> dict[str, Name]:
    names = {name.path: name for name in _own()}
    names |= {path: replace(names[own], path=path) for path, own in _ALIASES.items()}
    return names | {name.path: name for name in _converted()}


NAMES: Mapping[str, Name] = MappingProxyType(_all())
"""Every name, as in TOML, with dots between tables."""

GROUPS = frozenset(path.rpartition(".")[0] for path in NAMES if "." in path)
"""The tables there are."""


def _variables() -> dict[str, Name]:
    # `shutdown.timeout` is in milliseconds and `shutdown_timeout` in seconds, but both would be
    # the same variable. The setting's own name wins; two underscores say the dot.
    variables = {
        PREFIX + path.upper().replace(".", "__"): name
        for path, name in NAMES.items()
        if "." in path
    }
    for name in NAMES.values():
        variables.setdefault(name.variable, name)
    return variables


VARIABLES: Mapping[str, Name] = MappingProxyType(_variables())
"""Every name, as in the environment."""
