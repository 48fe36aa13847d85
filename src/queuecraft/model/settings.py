"""The settings of a QueueCraft, checked before anything is connected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Literal, TypedDict

from queuecraft.model.errors import ConfigError
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

_ABOVE_ZERO = ("publish_timeout", "shutdown_timeout", "timeout", "reconnect_delay")
_FROM_ONE = ("concurrency", "prefetch", "max_pending", "max_message_bytes", "reconnect_attempts")


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
        for name in _ABOVE_ZERO:
            if not (is_number(value := getattr(self, name)) and value > 0):
                raise self._wrong(name, "seconds above 0")
        for name in _FROM_ONE:
            value = getattr(self, name)
            if value is not None and not (is_whole(value) and value >= 1):
                raise self._wrong(name, "a whole number from 1 on")
        for name, allowed in (
            ("exchange_type", EXCHANGE_TYPES),
            ("on_outage", ("wait", "fail")),
            ("unroutable", ("error", "drop")),
        ):
            if getattr(self, name) not in allowed:
                raise self._wrong(name, "one of " + ", ".join(map(repr, allowed)))
        if not (is_whole(self.compression_threshold) and self.compression_threshold >= 0):
            raise self._wrong("compression_threshold", "bytes from 0 on")
        if "://" not in str(self.url):  # not shown: a URL may hold a password
            raise ConfigError("the url has no scheme; expected a URL such as 'local://'")
        self.policy  # noqa: B018  its own checks run now, not at the first message

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
        default = next(each.default for each in fields(self) if each.name == name)
        value = getattr(self, name)
        return ConfigError(f"{name}={value!r}: expected {expected} (default {default!r})")
