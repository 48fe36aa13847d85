"""The keywords that `publish`, `publish_many` and `send` share, checked before anything is sent."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TypedDict

import msgspec

from queuecraft.codec.headers import RETRY_POLICY, check_user_headers
from queuecraft.codec.reason import shorten
from queuecraft.drivers.base import NO_HEADERS, Exchange, Traits
from queuecraft.model.checks import nearest
from queuecraft.model.errors import ConfigError, UnsupportedFeature
from queuecraft.model.naming import MAX_NAME
from queuecraft.model.policy import DeadLetter, NoDeadLetter, NoRetry, Policy, Retry
from queuecraft.model.types import Headers

MAX_KEY = 8192  # bytes; a key travels in a header, and all of those share one frame
FOR_EVER = 250_000_000_000.0  # seconds; a time beyond the year 9999 cannot be written down


class PublishOptions(TypedDict, total=False):
    """What may be said about a message beyond its event and payload."""

    headers: Headers
    message_id: str
    correlation_id: str
    reply_to: str
    timestamp: datetime
    key: str
    priority: int
    ttl: float
    delay: float
    deliver_at: datetime
    persistent: bool
    retry: Retry | NoRetry
    dead_letter: DeadLetter | NoDeadLetter
    exchange: Exchange | str
    unroutable: Literal["error", "drop"]


_KNOWN = frozenset(PublishOptions.__annotations__)


class Details(msgspec.Struct, frozen=True, gc=False, eq=False):
    """What the options of one call come to; an option that is None was left out."""

    timestamp: float
    message_id: str | None = None
    correlation_id: str | None = None
    key: str | None = None
    headers: Headers = NO_HEADERS
    due_at: float | None = None
    expires_at: float | None = None
    priority: int = 0
    persistent: bool = True
    reply_to: str | None = None

    @classmethod
    def of(cls, options: PublishOptions, now: float, traits: Traits) -> Details:
        """The options of a call at this moment, for a broker that can do this much."""
        if not options.keys() <= _KNOWN:
            unknown = min(options.keys() - _KNOWN)
            hint = nearest(unknown, PublishOptions.__annotations__)
            raise ConfigError(f"unknown option {unknown!r} of publish; {hint}")
        due_at = _due(options.get("delay"), options.get("deliver_at"), now)
        expires_at = None
        if (ttl := options.get("ttl")) is not None:
            expires_at = (now if due_at is None else due_at) + _seconds("ttl", ttl, above=True)
        timestamp = now
        if (stamp := options.get("timestamp")) is not None:
            timestamp = _epoch("timestamp", stamp)
            if due_at is None:
                due_at = now  # a time to live counts from here, not from what the timestamp says
        if (message_id := options.get("message_id")) is not None:
            _check_text("message_id", message_id, MAX_NAME, least=1)
        if (correlation_id := options.get("correlation_id")) is not None:
            _check_text("correlation_id", correlation_id, MAX_NAME)
        if (reply_to := options.get("reply_to")) is not None:
            _check_text("reply_to", reply_to, MAX_NAME)
        if (key := options.get("key")) is not None:
            _check_text("key", key, MAX_KEY)
        priority = 0
        if (wanted := options.get("priority")) is not None:
            priority = _priority(wanted, traits)
        persistent: object = options.get("persistent")
        if not isinstance(persistent, (bool, type(None))):
            raise ConfigError(f"persistent={persistent!r}: expected True or False")
        return cls(
            timestamp,
            message_id,
            correlation_id,
            key,
            _headers(options),
            due_at,
            expires_at,
            priority,
            persistent is not False,
            reply_to,
        )


def drops(options: PublishOptions, *, otherwise: bool) -> bool:
    """Whether an event nobody is bound to may be dropped.

    >>> drops({"unroutable": "drop"}, otherwise=False)
    True
    """
    value: object = options.get("unroutable")
    if value not in ("error", "drop", None):
        raise ConfigError(f"unroutable={value!r}: expected 'error' or 'drop'")
    return otherwise if value is None else value == "drop"


def is_text(value: object, limit: int, *, least: int = 0) -> bool:
    """Whether it is a str that every broker can write, of no more bytes than the limit.

    >>> is_text("o-1", 255), is_text(5, 255), is_text("half of \\ud83d", 255)
    (True, False, False)
    """
    if not isinstance(value, str):
        return False
    try:
        return least <= (len(value) if value.isascii() else len(value.encode())) <= limit
    except UnicodeEncodeError:
        return False


# -- the policy that travels with a message --------------------------------------------------------


def policy_header(options: PublishOptions) -> str | None:
    """The retry and dead-letter options of a publish, as they travel with the message."""
    retry, dead_letter = options.get("retry"), options.get("dead_letter")
    if retry is None and dead_letter is None:
        return None
    checked = Policy(retry=retry, dead_letter=dead_letter)
    value: dict[str, object] = {}
    if isinstance(checked.retry, NoRetry):
        value["max_retries"] = 0
    elif checked.retry is not None:
        numbers: dict[str, float] = msgspec.to_builtins(checked.retry)
        # JSON has no infinity.
        value.update({name: min(each, sys.float_info.max) for name, each in numbers.items()})
    if checked.dead_letter is not None:
        if checked.dead_letter not in (DeadLetter(), NoDeadLetter()):
            raise ConfigError(
                f"dead_letter={dead_letter!r}: a message can only say whether it is kept; where "
                "is said by its worker"
            )
        value["dead_letter"] = isinstance(checked.dead_letter, DeadLetter)
    return msgspec.json.encode(value).decode()


def policy_for(headers: Headers, consumer: Policy) -> Policy:
    """The consumer's policy with what the message carries, within the consumer's limits.

    A header is hostile until proven otherwise: one that cannot be read is ignored.

    >>> policy_for({"x-retry": '{"max_retries":100}'}, Policy(retry=Retry(max_retries=5))).retry
    Retry(max_retries=5, initial_delay=1.0, factor=2.0, max_delay=30.0, jitter=0.0)
    """
    text = headers.get(RETRY_POLICY)
    if text is None or not isinstance(text, (str, bytes)):
        return consumer
    try:
        value: dict[str, Any] = msgspec.json.decode(text, type=dict[str, float | bool])
        keep = value.pop("dead_letter", None)
        retry: Retry | NoRetry | None = None
        if value.get("max_retries") == 0:
            retry = NoRetry()
        elif value:
            if "max_retries" in value:
                value["max_retries"] = int(value["max_retries"])
            retry = Retry(**value)
    except (msgspec.MsgspecError, ConfigError, TypeError, ValueError, OverflowError):
        return consumer
    return Policy(
        retry=None if retry is None else retry.within(consumer.retry or NoRetry()),
        dead_letter=NoDeadLetter() if keep is False else None,
    ).over(consumer)


# -- one by one ------------------------------------------------------------------------------------


def _headers(options: PublishOptions) -> Headers:
    given: object = options.get("headers")
    policy = policy_header(options)
    if given is None and policy is None:
        return NO_HEADERS
    if not isinstance(given, (Mapping, type(None))):
        raise ConfigError(f"headers={shorten(repr(given), 60)}: expected names and values, a dict")
    headers: dict[str, Any] = dict(given or {})
    check_user_headers(headers)
    if policy is not None:
        headers[RETRY_POLICY] = policy
    return headers


def _due(delay: object, deliver_at: object, now: float) -> float | None:
    """When it is due, if that is not now."""
    if delay is None and deliver_at is None:
        return None
    if delay is not None and deliver_at is not None:
        raise ConfigError("give delay= or deliver_at=, not both")
    due = _epoch("deliver_at", deliver_at) if delay is None else now + _seconds("delay", delay)
    return due if due > now else None


def _seconds(name: str, value: object, *, above: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(f"{name}={value!r}: expected a number of seconds")
    if not 0 <= value < FOR_EVER or (above and value == 0):
        raise ConfigError(f"{name}={value!r}: expected seconds {'above' if above else 'from'} 0")
    return value


def _epoch(name: str, value: object) -> float:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        example = datetime(2030, 1, 1, tzinfo=UTC)
        raise ConfigError(f"{name}={value!r}: expected a datetime with a time zone, as {example!r}")
    return value.timestamp()


def _check_text(name: str, value: object, limit: int, *, least: int = 0) -> None:
    if not is_text(value, limit, least=least):
        raise ConfigError(
            f"{name}={shorten(repr(value), 60)}: expected a str of {least} to {limit:,} bytes"
        )


def _priority(value: object, traits: Traits) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 255:
        raise ConfigError(f"priority={value!r}: expected a whole number from 0 to 255")
    if value and not traits.priority:
        raise UnsupportedFeature(
            "this broker has no priorities; leave out priority=",
            broker=traits.name,
            operation="publish",
        )
    return value
