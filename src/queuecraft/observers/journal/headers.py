"""Headers as a row has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

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
from queuecraft.codec.typed import to_json

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
            others[name] = value
    return texts or None, to_json(others) if others else None


def text(headers: Mapping[str, Any], name: str) -> str | None:
    """A header, if it is a text: anybody may have written anything there."""
    value = headers.get(name)
    return value if isinstance(value, str) else None
