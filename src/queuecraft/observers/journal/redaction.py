"""Fields of a payload that nobody should read in the lake."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

import msgspec

MASK: Final = "***"

_EACH: Final = "[]"


class Redaction:
    """Masks fields of JSON texts, by their paths.

    >>> redaction = Redaction(["card.number", "lines[].sku"])
    >>> redaction.apply(b'{"card": {"number": 42}, "lines": [{"sku": "a"}, {"n": 1}]}')
    b'{"card":{"number":"***"},"lines":[{"sku":"***"},{"n":1}]}'
    >>> redaction.apply(b"no JSON") is None
    True
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = [_steps(path) for path in paths]
        # Decimals, so that a price is written back digit by digit.
        self._decode = msgspec.json.Decoder(float_hook=Decimal).decode
        self._encode = msgspec.json.Encoder(decimal_format="number").encode

    def apply(self, body: bytes) -> bytes | None:
        """The text with its fields masked; None if it cannot be read, and so not be masked."""
        try:
            value = self._decode(body)
            for path in self._paths:
                value = _masked(value, path, 0)
            return self._encode(value)
        except (ValueError, RecursionError):  # MsgspecError is a ValueError, so is bad UTF-8
            return None


def _steps(path: str) -> tuple[str, ...]:
    steps: list[str] = []
    for part in path.split("."):
        name, bracket, _ = part.partition("[")
        if name:
            steps.append(name)
        if bracket:
            steps += [_EACH] * part.count(_EACH)
    return tuple(steps)


def _masked(value: Any, path: tuple[str, ...], at: int) -> Any:
    """Where a payload is not of the shape that the path tells, rather too much than too little."""
    if at == len(path):
        return MASK
    step = path[at]
    if isinstance(value, list):
        inside = at + 1 if step == _EACH else at
        value[:] = [_masked(each, path, inside) for each in value]
    elif step == _EACH:
        return _masked(value, path, at + 1)
    elif isinstance(value, dict) and step in value:
        value[step] = _masked(value[step], path, at + 1)
    return value
