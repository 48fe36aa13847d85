"""The keywords that `publish`, `publish_many` and `send` share, turned into a message."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from datetime import UTC, datetime
from os import urandom
from typing import Any, Literal, TypedDict

import msgspec

from queuecraft.codec import Codec
from queuecraft.codec.headers import RETRY_POLICY, check_user_headers
from queuecraft.drivers.base import NO_HEADERS, Exchange, Outgoing, Traits
from queuecraft.model.errors import ConfigError, PayloadError, QueueError, UnsupportedFeature
from queuecraft.model.policy import DeadLetter, NoDeadLetter, NoRetry, Policy, Retry
from queuecraft.model.types import Headers


class PublishOptions(TypedDict, total=False):
    """What may be said about a message beyond its event and payload."""

    headers: Headers
    message_id: str
    correlation_id: str
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


class Recipe:
    """How messages of one event, or for one queue, are made; worked out once."""

    __slots__ = (
        "_encode",
        "_key",
        "_now",
        "content_type",
        "exchange",
        "exchange_name",
        "name",
        "prepared",
        "queue",
    )

    def __init__(
        self,
        name: str,
        payload_type: Any,
        codec: Codec,
        now: Callable[[], float],
        *,
        key: Callable[[Any], str] | None = None,
        exchange: Exchange | None = None,
        queue: str | None = None,
    ) -> None:
        self.name = name
        self.exchange = exchange
        self.exchange_name = "" if exchange is None else exchange.name
        self.queue = queue
        self.content_type = codec.content_type_for(payload_type)
        self.prepared = exchange is None
        self._encode = codec.encoder(payload_type)
        self._key = key
        self._now = now

    def make(self, payload: object) -> Outgoing:
        """The message for a payload, with no options: the path that must be cheap."""
        body, encoding = self._encode(payload)
        return Outgoing(
            body,
            urandom(16).hex(),
            self.exchange_name,
            self.name,
            self._now(),
            self.content_type,
            encoding,
            self.key_of(payload) if self._key is not None else None,
            self.queue,
        )

    def make_many(self, payloads: Sequence[object]) -> tuple[list[Outgoing], dict[int, QueueError]]:
        """The messages for many payloads, and what was wrong with which: what can be done once
        for all of them is."""
        encode, key_of = self._encode, self._key and self.key_of
        exchange, name, kind, queue = self.exchange_name, self.name, self.content_type, self.queue
        now = self._now()
        ids = urandom(16 * len(payloads)).hex()
        messages: list[Outgoing] = []
        errors: dict[int, QueueError] = {}
        at = 0
        for payload in payloads:
            try:
                body, encoding = encode(payload)
                key = key_of(payload) if key_of is not None else None
            except QueueError as error:
                errors[at // 32] = error
            else:
                messages.append(
                    Outgoing(
                        body, ids[at : at + 32], exchange, name, now, kind, encoding, key, queue
                    )
                )
            at += 32
        return messages, errors

    def make_with(self, payload: object, options: PublishOptions, traits: Traits) -> Outgoing:
        """The message for a payload, with everything the caller asked for."""
        unknown = options.keys() - PublishOptions.__annotations__.keys()
        if unknown:
            known = ", ".join(PublishOptions.__annotations__)
            raise ConfigError(f"unknown option {min(unknown)!r} of publish; known: {known}")
        body, encoding = self._encode(payload)
        now = self._now()
        due_at = _due(options, now)
        expires_at = None
        if (ttl := options.get("ttl")) is not None:
            expires_at = (now if due_at is None else due_at) + _seconds("ttl", ttl, above=True)
        key = options.get("key")
        if key is None:
            key = self.key_of(payload)
        return Outgoing(
            body,
            _text("message_id", options.get("message_id")) or urandom(16).hex(),
            self.exchange_name,
            self.name,
            now if (stamp := options.get("timestamp")) is None else _epoch("timestamp", stamp),
            self.content_type,
            encoding,
            _text("key", key),
            queue=self.queue,
            headers=_headers(options),
            due_at=due_at,
            expires_at=expires_at,
            priority=_priority(options.get("priority", 0), traits),
            persistent=options.get("persistent", True),
            correlation_id=_text("correlation_id", options.get("correlation_id")),
        )

    def through(self, exchange: Exchange, *, prepared: bool) -> Recipe:
        """The same by way of another exchange."""
        other = copy(self)
        other.exchange = exchange
        other.exchange_name = exchange.name
        other.prepared = prepared
        return other

    def key_of(self, payload: object) -> str | None:
        """The key that the event's own function gives the payload."""
        if self._key is None:
            return None
        try:
            key = self._key(payload)
        except Exception as error:
            raise PayloadError(
                f"the key function of event {self.name!r} failed: {error}"
            ) from error
        if not isinstance(key, str):
            kind = type(key).__name__
            raise PayloadError(f"the key function of event {self.name!r} gave {kind}, not a str")
        return key


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
        value.update(msgspec.to_builtins(checked.retry))
    if checked.dead_letter is not None:
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
            value["max_retries"] = int(value.get("max_retries", 0))
            retry = Retry(**value)
    except (msgspec.MsgspecError, ConfigError, TypeError, ValueError, OverflowError):
        return consumer
    return Policy(
        retry=None if retry is None else retry.within(consumer.retry or NoRetry()),
        dead_letter=NoDeadLetter() if keep is False else None,
    ).over(consumer)


def _headers(options: PublishOptions) -> Headers:
    given = options.get("headers")
    policy = policy_header(options)
    if given is None and policy is None:
        return NO_HEADERS
    headers = dict(given or {})
    check_user_headers(headers)
    if policy is not None:
        headers[RETRY_POLICY] = policy
    return headers


def _due(options: PublishOptions, now: float) -> float | None:
    delay, deliver_at = options.get("delay"), options.get("deliver_at")
    if delay is not None and deliver_at is not None:
        raise ConfigError("give delay= or deliver_at=, not both")
    if delay is not None:
        return now + _seconds("delay", delay) if delay else None
    return None if deliver_at is None else _epoch("deliver_at", deliver_at)


def _seconds(name: str, value: object, *, above: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ConfigError(f"{name}={value!r}: expected a number of seconds")
    if value < 0 or (above and value == 0):
        raise ConfigError(f"{name}={value!r}: expected seconds {'above' if above else 'from'} 0")
    return value


def _epoch(name: str, value: object) -> float:
    if not isinstance(value, datetime) or value.tzinfo is None:
        example = datetime(2030, 1, 1, tzinfo=UTC)
        raise ConfigError(f"{name}={value!r}: expected a datetime with a time zone, as {example!r}")
    return value.timestamp()


def _text(name: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{name}={value!r}: expected a str")
    return value


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
