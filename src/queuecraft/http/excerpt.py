"""What is shown of a value that anybody may have sent: plain JSON, and never too much of it."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

CUT = "…"
DEEPEST = 50  # levels of lists and tables

_PLAIN = (date, time, timedelta, Decimal, UUID)


class Excerpt:
    """Plain JSON of a value. What is beyond its room is left out, and `cut` says so. With `sealed`,
    that stands for what may hold fields that cannot be seen one by one: bytes, texts of JSON.

    >>> Excerpt(characters=12).of({"name": "Ada Lovelace", "tags": (1, 2)})
    {'name': 'Ada Love…', 'tags': '…'}
    >>> Excerpt().of([b"\\x00", float("nan"), 2**70])
    ['AA==', 'nan', 1180591620717411303424]
    """

    def __init__(
        self, *, values: int = 20_000, characters: int = 65_536, sealed: str | None = None
    ) -> None:
        self._values = values
        self._characters = characters
        self._sealed = sealed
        self.cut = False

    def of(self, value: Any, depth: int = 0) -> Any:
        """As much of the value as there is room for."""
        self._values -= 1
        if self._values < 0 or self._characters <= 0 or depth > DEEPEST:
            self.cut = True
            return CUT
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            # Python refuses to write larger ones in decimals.
            return value if value.bit_length() <= 8192 else self._text(hex(value))
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if isinstance(value, str):
            return self._text(value if not self._sealed or not _is_json(value) else self._sealed)
        if isinstance(value, bytes | bytearray | memoryview):
            if self._sealed:
                return self._text(self._sealed)
            return self._text(base64.b64encode(bytes(value[: self._characters])).decode())
        if isinstance(value, Mapping):
            return self._table(value, depth)
        if isinstance(value, list | tuple | set | frozenset):
            return self._row(list(value), depth)
        return self._text(
            self._sealed if self._sealed and not isinstance(value, _PLAIN) else str(value)
        )

    def _text(self, text: str) -> str:
        room, self._characters = self._characters, self._characters - len(text)
        if len(text) <= room:
            return text
        self.cut = True
        return text[:room] + CUT

    def _table(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for key, each in value.items():
            name = self._key(key)
            shown[name] = self.of(each, depth + 1)
            if shown[name] == CUT and self.cut:
                break
        return shown

    def _row(self, value: list[Any], depth: int) -> list[Any]:
        shown: list[Any] = []
        for each in value:
            shown.append(self.of(each, depth + 1))
            if shown[-1] == CUT and self.cut:
                break
        return shown

    def _key(self, key: Any) -> str:
        if isinstance(key, bytes):
            key = key.decode("utf-8", "replace")  # by which it can be masked
        text = (key if isinstance(key, str) else str(key))[:1000]
        self._characters -= len(text)
        return text


def _is_json(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[")


def types_of(value: Any) -> Any:
    """The shape of plain JSON without what it says: every value as the name of its type.

    >>> types_of({"card": "4111", "lines": [1, 2.5, None]})
    {'card': 'str', 'lines': ['int', 'float', None]}
    """
    if isinstance(value, dict):
        return {name: types_of(each) for name, each in value.items()}
    if isinstance(value, list):
        return [types_of(each) for each in value]
    return None if value is None else type(value).__name__
