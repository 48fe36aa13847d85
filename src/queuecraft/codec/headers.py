"""What a message carries besides its payload: the names on the wire, and how to read them safely.

Headers of a received message are hostile: anyone may have written them. Nothing here raises on
what it reads; only `check_user_headers`, for what an application is about to send, does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from queuecraft.codec.reason import shorten
from queuecraft.model.errors import ConfigError, PayloadError

ID = "x-id"
CORRELATION_ID = "x-correlation-id"
REPLY_TO = "x-reply-to"
CONTENT_TYPE = "content-type"
CONTENT_ENCODING = "content-encoding"
EVENT = "x-event"
KEY = "x-key"

PUBLISHED_AT = "x-published-at"
DUE_AT = "x-due-at"
EXPIRES_AT = "x-expires-at"

RETRY_COUNT = "x-retry-count"
REDELIVERIES = "x-redeliveries"
RETRY_POLICY = "x-retry"
REPLAY_ID = "x-replay-id"

ORIGINAL_QUEUE = "x-original-queue"
ORIGINAL_ROUTING_KEY = "x-original-routing-key"
ORIGINAL_TOPIC = "x-original-topic"
ORIGINAL_PARTITION = "x-original-partition"
ORIGINAL_OFFSET = "x-original-offset"
ERROR = "x-error"
ERROR_TYPE = "x-error-type"
TRACEBACK = "x-traceback"
FAILED_AT = "x-failed-at"
REASON = "x-reason"
ATTEMPTS = "x-attempts"
DEAD_RETRY_COUNT = "x-dead-retry-count"
"""Failures of a dead letter in a worker of dead letters; `x-retry-count` is part of its story."""

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"

DEAD_LETTER = frozenset(
    {
        ORIGINAL_QUEUE,
        ORIGINAL_ROUTING_KEY,
        ORIGINAL_TOPIC,
        ORIGINAL_PARTITION,
        ORIGINAL_OFFSET,
        ERROR,
        ERROR_TYPE,
        TRACEBACK,
        RETRY_COUNT,
        FAILED_AT,
        REASON,
        ATTEMPTS,
        DEAD_RETRY_COUNT,
    }
)
"""What a dead letter has and its original had not; a redrive takes them off again."""

RESERVED = DEAD_LETTER | {
    ID,
    CORRELATION_ID,
    REPLY_TO,
    CONTENT_TYPE,
    CONTENT_ENCODING,
    EVENT,
    KEY,
    PUBLISHED_AT,
    DUE_AT,
    EXPIRES_AT,
    REDELIVERIES,
    RETRY_POLICY,
    REPLAY_ID,
}
"""What an application may not set by hand; the trace headers are its own to set."""

MAX_ERROR = 1024
MAX_TRACEBACK = 8192
MAX_HEADERS = 65536
MAX_NAME = 255
MAX_COUNT = 1_000_000

DEATH = "x-death"
"""RabbitMQ's own story of a message that has died."""

_BROKER_OWNED = frozenset({DEATH, "x-delivery-count"})
_BROKER_OWNED_PREFIXES = ("x-first-death-", "x-last-death-")


def count(headers: Mapping[str, Any], name: str) -> int:
    """A counter from a header, whatever somebody put there: never negative, at most a million.

    >>> count({RETRY_COUNT: 2}, RETRY_COUNT), count({RETRY_COUNT: b"2"}, RETRY_COUNT)
    (2, 2)
    >>> count({}, RETRY_COUNT), count({RETRY_COUNT: "many"}, RETRY_COUNT)
    (0, 0)
    """
    value = headers.get(name)
    if isinstance(value, bool):
        return 0
    if isinstance(value, int):
        return max(0, min(value, MAX_COUNT))
    if isinstance(value, float):
        return int(max(0.0, min(value, MAX_COUNT))) if math.isfinite(value) else 0
    if isinstance(value, bytes | bytearray):
        value = bytes(value).decode("ascii", "replace")
    if isinstance(value, str) and value.isascii() and value.isdigit():
        digits = value.lstrip("0")
        return MAX_COUNT if len(digits) > 7 else min(int(digits or 0), MAX_COUNT)
    return 0


def strip_broker_owned(headers: Mapping[str, Any]) -> dict[str, Any]:
    """The headers without those a broker writes about its own doings.

    >>> strip_broker_owned({"x-death": [], "x-first-death-queue": "a", "tenant": "t1"})
    {'tenant': 't1'}
    """
    return {
        name: value
        for name, value in headers.items()
        if name not in _BROKER_OWNED and not name.startswith(_BROKER_OWNED_PREFIXES)
    }


def size(headers: Mapping[str, Any]) -> int:
    """About how many bytes the headers take on the wire, nested tables included.

    >>> size({"tenant": "t1"})
    14
    """
    total = 0
    waiting: list[Any] = [headers]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            total += _utf8_length(value)
        elif isinstance(value, bytes | bytearray | memoryview):
            total += len(value)
        elif isinstance(value, Mapping):
            total += 6 * len(value)  # AMQP: the name's length, the value's type and length
            waiting.extend(value.keys())
            waiting.extend(value.values())
        elif isinstance(value, list | tuple):
            total += 5 * len(value)
            waiting.extend(value)
        elif value is not None:
            total += 8
    return total


def trim(text: str, limit_bytes: int, *, tail: bool = False) -> str:
    """At most so many bytes of UTF-8 of a text, never half a character.

    Errors keep their beginning. A traceback's news is at its end, so `tail=True` keeps both ends.

    >>> trim("a long story", 9)
    'a long…'
    >>> trim("a long story with an end", 15, tail=True)
    'a l…th an end'
    """
    if len(text) <= limit_bytes and _utf8_length(text) <= limit_bytes:
        return text.encode("utf-8", "replace").decode("utf-8")
    ellipsis = "…" if limit_bytes >= 3 else ""
    room = max(0, limit_bytes - 3 * len(ellipsis))
    end = room * 3 // 4 if tail else 0
    # No more characters than bytes can be kept: do not encode what will be cut anyway.
    head_bytes = text[:limit_bytes].encode("utf-8", "replace")[: room - end]
    tail_bytes = text[-limit_bytes:].encode("utf-8", "replace")[-end:] if end else b""
    return head_bytes.decode("utf-8", "ignore") + ellipsis + tail_bytes.decode("utf-8", "ignore")


def check_user_headers(headers: Mapping[str, Any]) -> None:
    """Refuse headers that an application may not set or that cannot travel on every broker.

    >>> check_user_headers({"tenant": "t1", "traceparent": "00-..."})
    >>> check_user_headers({"x-retry-count": 3})
    Traceback (most recent call last):
    queuecraft.ConfigError: the header 'x-retry-count' is QueueCraft's own; \
choose another name
    """
    for name, value in headers.items():
        _check_name(name)
        _check_value(name, value)
    total = size(headers)
    if total > MAX_HEADERS:
        raise PayloadError(
            f"the headers take {total:,} bytes, the limit is {MAX_HEADERS:,}; "
            "put what is large into the payload"
        )


def _check_name(name: Any) -> None:
    if not isinstance(name, str):
        raise ConfigError(f"a header name must be a str, not {type(name).__name__}")
    if not name or len(name) > MAX_NAME or not _is_utf8(name) or _utf8_length(name) > MAX_NAME:
        raise ConfigError(
            f"the header name {shorten(name, 40)!r} must be UTF-8 text of 1 to {MAX_NAME} bytes"
        )
    lower = name.lower()
    if lower in RESERVED or lower in _BROKER_OWNED or lower.startswith(_BROKER_OWNED_PREFIXES):
        owner = "QueueCraft's own" if lower in RESERVED else "the broker's own"
        raise ConfigError(f"the header {name!r} is {owner}; choose another name")


def _check_value(name: str, value: Any) -> None:
    if value is None or isinstance(value, bool | bytes):
        return
    if isinstance(value, str):
        problem = None if _is_utf8(value) else "is not valid Unicode text"
    elif isinstance(value, int):
        problem = None if -(2**63) <= value < 2**63 else "does not fit into 64 bits"
    elif isinstance(value, float):
        problem = None if math.isfinite(value) else "is not a finite number"
    else:
        problem = f"is of type {type(value).__name__}; use str, int, float, bool, bytes or None"
    if problem:
        raise PayloadError(f"the header {name!r} {problem}")


def _utf8_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _is_utf8(text: str) -> bool:
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False
