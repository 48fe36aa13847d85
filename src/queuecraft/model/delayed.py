"""How delayed messages are kept: how many, where, and what becomes of those that are overdue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from queuecraft.model.checks import (
    FLAG,
    FROM_ONE,
    SECONDS,
    Check,
    number,
    one_of,
    or_none,
    refusal,
    whole,
)

CleanupPolicy: TypeAlias = Literal["deliver", "dead_letter", "drop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedSettings:
    """The setting `delayed`: for `qc.delayed`, in code or as the table `[delayed]` of a file.

    >>> DelayedSettings(limit=500).warning_size
    400
    >>> DelayedSettings(policy="ignore")
    Traceback (most recent call last):
    queuecraft.ConfigError: delayed.policy='ignore': expected one of 'deliver', ...
    """

    store: str | None = field(default=None, repr=False)
    """Where they wait: `redis://…`, or the path of a file. None: beside the queues."""
    limit: int = 10_000
    """How many may wait; more are refused with `QueueFull`."""
    warn_at: float = 0.8
    """The share of the limit from which on the status is `warning`."""
    service: bool = False
    """Whether a process that runs workers also moves what is due, and cleans up."""
    cleanup_interval: float = 300.0
    batch: int = 1000
    """How many are cleaned up in one step."""
    policy: CleanupPolicy = "deliver"
    """What becomes of the overdue: delivered late, kept as dead letters, or dropped."""
    grace: float = 60.0
    """Seconds past its time from which on a message is overdue."""
    webhook: str | None = field(default=None, repr=False)
    """Where alerts are posted to, as JSON with counts alone."""
    growth_floor: float = 100.0
    """Growth in messages a minute, above the usual, that is never abnormal."""
    growth_deviations: float = 6.0
    """How far from the usual growth is abnormal, in usual deviations."""

    def __post_init__(self) -> None:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        bad = [name for name, check in CHECKS.items() if not check.will_do(values[name])]
        if bad:
            raise refusal(
                [
                    CHECKS[each].complaint(values[each], DEFAULTS[each], f"delayed.{each}")
                    for each in bad
                ]
            )

    @property
    def warning_size(self) -> int:
        """The size from which on the status is `warning`."""
        return max(1, min(self.limit, round(self.limit * self.warn_at)))


def _is_place(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()


def _is_webhook(value: object) -> bool:
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or " " in value:
        return False
    try:
        parts = urlsplit(value)
        named = parts.scheme in ("http", "https") and bool(parts.hostname)
        return named and parts.port != 0 and parts.username is None and not parts.fragment
    except ValueError:  # a port that is none
        return False


CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "store": or_none(
            Check(
                _is_place,
                "a redis:// URL or the path of a file",
                "'redis://localhost:6379/0'",
                secret=True,
            )
        ),
        "limit": FROM_ONE,
        "warn_at": number(0, "a share from 0 to 1", "0.8", most=1),
        "service": FLAG,
        "cleanup_interval": SECONDS,
        "batch": whole(1, "a whole number from 1 to 10000", "1000", most=10_000),
        "policy": one_of("deliver", "dead_letter", "drop"),
        "grace": number(0, "seconds from 0 on", "60"),
        "webhook": or_none(
            Check(
                _is_webhook,
                "an http:// or https:// URL without a user name",
                "'https://alerts.example/hook'",
                secret=True,
            )
        ),
        "growth_floor": number(0, "messages a minute from 0 on", "100"),
        "growth_deviations": number(0, "a number from 0 on", "6"),
    }
)
"""What each of them may be."""

DEFAULTS: Mapping[str, str] = MappingProxyType(
    {each.name: repr(each.default) for each in fields(DelayedSettings)}
)
