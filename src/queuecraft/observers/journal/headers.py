"""Headers as a row has them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from queuecraft.codec.headers import (
    ATTEMPTS,
    CONTENT_ENCODING,
    CONTENT_TYPE,
    CORRELATION_ID,
    DUE_AT,
    EVENT,
    EXPIRES_AT,
    ID,
    KEY,
    PUBLISHED_AT,
    REDELIVERIES,
    REPLAY_ID,
    REPLY_TO,
    RETRY_COUNT,
)

COLUMNS: Final = frozenset(
    {
        CONTENT_ENCODING,
        CONTENT_TYPE,
        CORRELATION_ID,
        DUE_AT,
        EVENT,
        EXPIRES_AT,
        ID,
        KEY,
        PUBLISHED_AT,
        REDELIVERIES,
        REPLAY_ID,
        REPLY_TO,
        RETRY_COUNT,
        ATTEMPTS,
    }
)
"""Those that a row has a column for, or that other rows tell: they are not repeated among its
headers."""


def parted(headers: Mapping[str, Any]) -> tuple[dict[str, str] | None, str | None]:
    """Headers with a text for a value, and the others as a JSON object.

    >>> parted({"tenant": "t1", "tries": 2, "x-replay-id": "r-1"})
    ({'tenant': 't1'}, '{"tries":2}')
    """
    texts: dict[str, str] = {}
    others: dict[str, Any] = {}
    for name, value in headers.items():
        if name in COLUMNS:
            continue
        if isinstance(value, str):
            texts[name] = value
        else:
            others[name] = _plain(value)
    return texts or None, msgspec.json.encode(others).decode() if others else None


def text(headers: Mapping[str, Any], name: str) -> str | None:
    """A header, if it is a text: anybody may have written anything there."""
    value = headers.get(name)
    return value if isinstance(value, str) else None


def _plain(value: Any) -> Any:
    """A value that JSON knows."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"base64": b64encode(value).decode("ascii")}
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)
