"""The settings of a QueueCraft, checked before anything is connected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from difflib import get_close_matches
from math import inf
from typing import Any, Literal, TypeAlias, TypedDict

from queuecraft.model.errors import ConfigError
from queuecraft.model.naming import check_name
from queuecraft.model.policy import (
    DeadLetter,
    NoDeadLetter,
    NoRetry,
    Policy,
    Retry,
    is_number,
    is_whole,
)
from queuecraft.model.queue import EXCHANGE_TYPES, Exchange, ExchangeType

_Check: TypeAlias = tuple[Callable[[Any], bool], str]
"""Whether a value will do, and what is expected of it."""


class SettingsOptions(TypedDict, total=False):
    """The settings, as keywords of `QueueCraft`."""

    exchange: str
    exchange_type: ExchangeType
    retry: Retry | NoRetry
    dead_letter: DeadLetter | NoDeadLetter
    ttl: float | None
    ack_timeout: float | None
    max_redeliveries: int
    concurrency: int
    prefetch: int | None
    compression: bool | str | None
    compression_threshold: int
    serializer: str
    publish_timeout: float
    on_outage: Literal["wait", "fail"]
    max_pending: int
    unroutable: Literal["error", "drop"]
    shutdown_timeout: float
    timeout: float
    heartbeat: float
    auto_reconnect: bool
    reconnect_delay: float
    reconnect_attempts: int | None
    max_message_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be set, with its default.

    >>> Settings(concurrency=8).prefetch is None  # as many as run at once
    True
    >>> Settings(publish_timeout=0)
    Traceback (most recent call last):
    queuecraft.model.errors.ConfigError: publish_timeout=0: expected seconds above 0 (default 30.0)
    """

    url: str = field(default="local://", repr=False)
    exchange: str = "events"
    exchange_type: ExchangeType = "topic"
    retry: Retry | NoRetry = field(default_factory=Retry)
    dead_letter: DeadLetter | NoDeadLetter = field(default_factory=DeadLetter)
    ttl: float | None = None
    ack_timeout: float | None = None
    max_redeliveries: int = 20
    concurrency: int = 1
    prefetch: int | None = None
    compression: bool | str | None = None
    compression_threshold: int = 1024
    serializer: str = "json"
    publish_timeout: float = 30.0
    on_outage: Literal["wait", "fail"] = "wait"
    max_pending: int = 10_000
    unroutable: Literal["error", "drop"] = "error"
    shutdown_timeout: float = 30.0
    timeout: float = 10.0
    heartbeat: float = 30.0
    auto_reconnect: bool = True
    reconnect_delay: float = 1.0
    reconnect_attempts: int | None = None
    max_message_bytes: int = 16 * 1024 * 1024

    def __post_init__(self) -> None:
        url: object = self.url
        if not isinstance(url, str) or "://" not in url:
            # What was given is not shown: it may hold a password.
            raise ConfigError("the url has no scheme; expected a URL such as 'local://'")
        for name, (will_do, expected) in _CHECKS.items():
            if not will_do(getattr(self, name)):
                raise self._wrong(name, expected)

    @property
    def policy(self) -> Policy:
        """What deliveries get where nothing closer says otherwise."""
        return Policy(
            retry=self.retry,
            dead_letter=self.dead_letter,
            ttl=self.ttl,
            ack_timeout=self.ack_timeout,
            max_redeliveries=self.max_redeliveries,
        )

    @property
    def default_exchange(self) -> Exchange:
        """Where events go that name no exchange of their own."""
        return Exchange(self.exchange, self.exchange_type)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Settings:
        """Settings from keywords, with unknown ones named.

        >>> Settings.of({"concurency": 2})
        Traceback (most recent call last):
        queuecraft.model.errors.ConfigError: unknown setting 'concurency'; did you mean ...
        """
        known = [each.name for each in fields(cls)]
        for name in values:
            if name not in known:
                close = get_close_matches(name, known, 1)
                hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
                raise ConfigError(f"unknown setting {name!r}; {hint}")
        return cls(**values)

    def _wrong(self, name: str, expected: str) -> ConfigError:
        setting = next(each for each in fields(self) if each.name == name)
        make = setting.default_factory
        default = setting.default if make is MISSING else make()
        value = getattr(self, name)
        return ConfigError(f"{name}={value!r}: expected {expected} (default {default!r})")


# -- what each setting may be ----------------------------------------------------------------------


def _whole(least: int, expected: str) -> _Check:
    return lambda value: is_whole(value) and value >= least, expected


def _one_of(*allowed: object) -> _Check:
    return lambda value: value in allowed, "one of " + ", ".join(map(repr, allowed))


def _is(*kinds: type, expected: str) -> _Check:
    return lambda value: isinstance(value, kinds), expected


def _or_none(check: _Check) -> _Check:
    will_do, expected = check
    return lambda value: value is None or will_do(value), f"{expected}, or None"


def _is_name(value: Any) -> bool:
    try:
        check_name("exchange", value)
    except ConfigError:
        return False
    return True


# A timer cannot be set to infinity, and no clock lives that long.
_SECONDS: _Check = (lambda value: is_number(value) and 0 < value < inf, "seconds above 0")
_FROM_ONE = _whole(1, "a whole number from 1 on")

_CHECKS: Mapping[str, _Check] = {
    "exchange": (_is_name, "a name of 1 to 255 bytes"),
    "exchange_type": _one_of(*EXCHANGE_TYPES),
    "retry": _is(Retry, NoRetry, expected="Retry(…) or NoRetry()"),
    "dead_letter": _is(DeadLetter, NoDeadLetter, expected="DeadLetter(…) or NoDeadLetter()"),
    "ttl": _or_none(_SECONDS),
    "ack_timeout": _or_none(_SECONDS),
    "max_redeliveries": _whole(0, "a whole number from 0 on"),
    "concurrency": _FROM_ONE,
    "prefetch": _or_none(_FROM_ONE),
    "compression": _is(bool, str, type(None), expected="its name, True for gzip, or None"),
    "compression_threshold": _whole(0, "bytes from 0 on"),
    "serializer": _is(str, expected="its name"),
    "publish_timeout": _SECONDS,
    "on_outage": _one_of("wait", "fail"),
    "max_pending": _FROM_ONE,
    "unroutable": _one_of("error", "drop"),
    "shutdown_timeout": _SECONDS,
    "timeout": _SECONDS,
    "heartbeat": _SECONDS,
    "auto_reconnect": _is(bool, expected="True or False"),
    "reconnect_delay": _SECONDS,
    "reconnect_attempts": _or_none(_FROM_ONE),
    "max_message_bytes": _FROM_ONE,
}
