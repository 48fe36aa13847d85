"""Plain values as YAML, so that a person can read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

_PLAIN: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$./-]*")
_UNSEEN: Final = re.compile(
    "[^ -~\u00a0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def to_yaml(value: Any) -> str:
    """What JSON can say, as YAML 1.2; whatever might be taken for something else is quoted.

    >>> print(to_yaml({"info": {"title": "Shop: orders"}, "tags": ["a", "no"], "more": {}}), end="")
    info:
      title: "Shop: orders"
    tags:
      - a
      - "no"
    more: {}
    """
    return "".join(f"{line}\n" for line in _lines(value))


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for name, each in value.items():
            yield from _headed(f"{_scalar(str(name))}:", each, "  ")
    elif isinstance(value, list) and value:
        for each in value:
            first, *rest = _lines(each)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)
    else:
        yield _scalar(value)


def _headed(head: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, (dict, list)) and value:
        yield head
        yield from (f"{indent}{line}" for line in _lines(value))
    else:
        yield f"{head} {_scalar(value)}"


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    text = msgspec.json.encode(value).decode()
    return _UNSEEN.sub(lambda found: f"\\U{ord(found[0]):08x}", text)
