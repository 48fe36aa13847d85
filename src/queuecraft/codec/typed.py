"""Values of headers that are no texts, as JSON, and the way back."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import suppress
from math import isfinite
from typing import Any, Final

import msgspec

_BYTES, _FLOAT, _TABLE = "base64", "float", "table"  # what JSON has no value for
_MARKS: Final = {_BYTES, _FLOAT, _TABLE}


def to_json(headers: Mapping[str, Any]) -> str:
    """Headers as a JSON object.

    >>> to_json({"pages": 2, "raw": b"\\xff", "of": {"table": "orders"}})
    '{"pages":2,"raw":{"base64":"/w=="},"of":{"table":{"table":"orders"}}}'
    """
    plain = {name: _plain(value) for name, value in headers.items()}
    return msgspec.json.encode(plain, enc_hook=str).decode()


def of_json(text: str) -> dict[str, Any]:
    """The headers again.

    >>> of_json('{"pages":2,"raw":{"base64":"/w=="},"of":{"table":{"table":"orders"}}}')
    {'pages': 2, 'raw': b'\\xff', 'of': {'table': 'orders'}}
    """
    headers: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Any])
    return {name: _restored(value) for name, value in headers.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return {_BYTES: b64encode(value).decode()}
    if isinstance(value, float) and not isfinite(value):
        return {_FLOAT: repr(value)}
    if isinstance(value, Mapping):  # another library's table in a header
        table = {str(name): _plain(each) for name, each in value.items()}
        # One that looks like what stands for bytes is told apart by a wrapping of its own.
        return {_TABLE: table} if _is_mark(table) else table
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def _restored(value: Any) -> Any:
    if isinstance(value, list):
        return [_restored(each) for each in value]
    if not isinstance(value, dict):
        return value
    if _is_mark(value):
        # Journals of old wrapped no table: what is not made above is one of theirs, as it is.
        ((mark, inner),) = value.items()
        if mark == _TABLE and _is_mark(inner):
            value = inner
        elif isinstance(inner, str):
            with suppress(ValueError):
                if mark == _BYTES:
                    return b64decode(inner, validate=True)
                if mark == _FLOAT and not isfinite(number := float(inner)):
                    return number
    return {name: _restored(each) for name, each in value.items()}


def _is_mark(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and value.keys() <= _MARKS
