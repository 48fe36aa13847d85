"""Fields of a payload that nobody should read in the lake."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

import msgspec

MASK: Final = "***"

_EACH: Final = "[]"
_ANYWHERE: Final = "*"


class Redaction:
    """Masks fields of JSON texts, by their paths; `*.number` is a field of any depth.

    >>> redaction = Redaction(["card.number", "lines[].sku"])
    >>> redaction.apply(b'{"card": {"number": 42}, "lines": [{"sku": "a"}, {"n": 1}]}')
    b'{"card":{"number":"***"},"lines":[{"sku":"***"},{"n":1}]}'
    >>> redaction.apply(b"no JSON") is None
    True
    """

    def __init__(self, paths: Iterable[str], mask: str = MASK, *, any_case: bool = False) -> None:
        self._paths = [_steps(path.casefold() if any_case else path) for path in paths]
        self._mask = mask
        self._any_case = any_case
        # Decimals, so that a price is written back digit by digit.
        self._decode = msgspec.json.Decoder(float_hook=Decimal).decode
        self._encode = msgspec.json.Encoder(decimal_format="number").encode

    def apply(self, body: bytes) -> bytes | None:
        """The text with its fields masked; None if it cannot be read, and so not be masked."""
        try:
            return self._encode(self.mask(self._decode(body)))
        except (ValueError, RecursionError):  # MsgspecError is a ValueError, so is bad UTF-8
            return None

    def mask(self, value: Any) -> Any:
        """A value of lists and dicts with its fields masked, in place.

        >>> Redaction(["*.number"]).mask({"card": {"number": 42}})
        {'card': {'number': '***'}}
        """
        for path in self._paths:
            value = _masked(value, path, 0, self._mask, self._any_case)
        return value


def _steps(path: str) -> tuple[str, ...]:
    steps: list[str] = []
    for part in path.split("."):
        name, bracket, _ = part.partition("[")
        if name:
            steps.append(name)
        if bracket:
            steps += [_EACH] * part.count(_EACH)
    return tuple(steps)


def _masked(value: Any, path: tuple[str, ...], at: int, mask: str, any_case: bool) -> Any:
    """Where a payload is not of the shape that the path tells, rather too much than too little."""
    if at == len(path):
        return mask
    step = path[at]
    if step == _ANYWHERE:
        if at + 1 == len(path):
            return mask
        value = _masked(value, path, at + 1, mask, any_case)
        if isinstance(value, dict):
            for name in value:
                value[name] = _masked(value[name], path, at, mask, any_case)
            return value
    if isinstance(value, list):
        inside = at + 1 if step == _EACH else at
        value[:] = [_masked(each, path, inside, mask, any_case) for each in value]
    elif step == _EACH:
        return _masked(value, path, at + 1, mask, any_case)
    elif isinstance(value, dict):
        if any_case:
            named = [name for name in value if name.casefold() == step]
        else:
            named = [step] if step in value else []
        for name in named:
            value[name] = _masked(value[name], path, at + 1, mask, any_case)
    return value
