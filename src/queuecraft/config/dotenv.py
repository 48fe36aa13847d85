"""The `.env` file: variables as a shell would set them, with nothing expanded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_BLANK = re.compile(r"[ \t\f\v]*(?:#[^\n]*)?(?:\n|\Z)")
_START = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*=[ \t]*")
_QUOTED = re.compile(
    r"""(?:'([^']*)'|"((?:[^"\\]|\\.)*)")[ \t]*(?:(?<=[ \t])\#[^\n]*)?(?:\n|\Z)""",
    re.DOTALL | re.VERBOSE,
)
_PLAIN = re.compile(r"[^\n]*(?:\n|\Z)")
_COMMENT = re.compile(r"(?:^|[ \t])#.*")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "'": "'", "$": "$", "`": "`"}

EXPECTED = "expected NAME=value, with the value in quotes if it has spaces or quotes"


@dataclass(frozen=True, slots=True)
class Line:
    """A variable's value, and the number of the line it begins on."""

    value: str
    number: int


def parse(text: str) -> tuple[Mapping[str, Line], list[int]]:
    """The variables, the last of a name winning, and the numbers of the lines that are wrong.

    >>> found, wrong = parse("# broker\\nexport QUEUECRAFT_TTL=5 # seconds\\nA='x=#y'\\noops")
    >>> found["QUEUECRAFT_TTL"].value, found["A"].value, wrong
    ('5', 'x=#y', [4])
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    found: dict[str, Line] = {}
    wrong: list[int] = []
    position, number = 0, 1
    while position < len(text):
        end = _next(text, position, number, found)
        if end is None:
            wrong.append(number)
            end = _end(_PLAIN, text, position)
        number += text.count("\n", position, end)
        position = end
    return found, wrong


def _next(text: str, position: int, number: int, found: dict[str, Line]) -> int | None:
    """Where the next entry ends; None if it cannot be understood."""
    if blank := _BLANK.match(text, position):
        return blank.end()
    start = _START.match(text, position)
    if start is None:
        return None
    if text[start.end() : start.end() + 1] in ("'", '"'):
        quoted = _QUOTED.match(text, start.end())
        if quoted is None:
            return None
        single, double = quoted.groups()
        value = _ESCAPE.sub(_unescaped, double) if single is None else single
        end = quoted.end()
    else:
        end = _end(_PLAIN, text, start.end())
        value = _COMMENT.sub("", text[start.end() : end].rstrip("\n"), count=1).strip()
    found[start[1]] = Line(value, number)
    return end


def _unescaped(escape: re.Match[str]) -> str:
    return _ESCAPES.get(escape[1], escape[0])


def _end(pattern: re.Pattern[str], text: str, position: int) -> int:
    found = pattern.match(text, position)
    return len(text) if found is None else found.end()
