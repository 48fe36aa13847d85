"""What payloads look like: which fields they have, of which types, and how often."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

ROOT: Final = "$"
DEEPEST: Final = 16
MOST: Final = 5_000
"""Fields that are told apart; those beyond are `parent.*`: somebody has ids for names."""

TYPES: Final = {
    dict: "object",
    list: "array",
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
}


class Shape:
    """The fields of many payloads. Each counts once a payload, with when it was first and last
    seen; times are whatever can be compared.

    >>> shape = Shape()
    >>> shape.add({"id": "o-1", "lines": [{"price": 1.5}, {"price": None}]}, 10)
    >>> shape.add({"id": "o-2"}, 20)
    >>> for field in shape.fields():
    ...     print(*field)
    $ object 2 10 20
    id string 2 10 20
    lines array 1 10 10
    lines[] object 1 10 10
    lines[].price number 1 10 10
    lines[].price null 1 10 10
    """

    def __init__(self) -> None:
        self._root = _Field()
        self._known = 1
        self._payloads = 0

    def add(self, payload: Any, at: int) -> None:
        """Take in one payload."""
        self._payloads += 1
        self._see(self._root, payload, at, DEEPEST)

    def fields(self) -> Iterator[tuple[str, str, int, int, int]]:
        """Path, type, count, first and last time of each."""
        waiting = [(ROOT, self._root)]
        while waiting:
            path, field = waiting.pop()
            for kind, (count, first, last, _) in field.types.items():
                yield path, kind, count, first, last
            start = "" if path == ROOT else path
            if field.items is not None:
                waiting.append((f"{start}[]", field.items))
            for name, child in reversed(field.children.items()):
                waiting.append((f"{start}.{name}" if start else name, child))

    def _see(self, field: _Field, value: Any, at: int, left: int) -> None:
        kind = TYPES[type(value)]
        if (seen := field.types.get(kind)) is None:
            field.types[kind] = [1, at, at, self._payloads]
        elif seen[3] != self._payloads:
            seen[0] += 1
            seen[1] = min(seen[1], at)
            seen[2] = max(seen[2], at)
            seen[3] = self._payloads
        if not left:
            return
        if kind == "object":
            children = field.children
            for name, each in value.items():
                child = children.get(name)
                self._see(self._child(field, name) if child is None else child, each, at, left - 1)
        elif kind == "array" and value:
            if field.items is None:
                field.items = _Field()
            for each in value:
                self._see(field.items, each, at, left - 1)

    def _child(self, field: _Field, name: str) -> _Field:
        if self._known >= MOST:
            name = "*"
        child = field.children.get(name)
        if child is None:
            child = field.children[name] = _Field()
            self._known += 1
        return child


class _Field:
    __slots__ = ("children", "items", "types")

    def __init__(self) -> None:
        # Of each type: how often, first and last seen, and in which payload it was counted last.
        self.types: dict[str, list[int]] = {}
        self.children: dict[str, _Field] = {}
        self.items: _Field | None = None
