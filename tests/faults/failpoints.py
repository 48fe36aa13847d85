"""Every place in the product where a process can be made to die, read from its source."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import queuecraft

SOURCE: Final = Path(queuecraft.__file__).parent

TRANSACTIONS: Final = {"write", "write_now", "consume", "_change", "_eval", "_declare", "eval"}
"""What a driver calls with the name of an operation, the first half of the failpoints in it."""


def found_in(source: str) -> set[str]:
    """The names of all failpoints in a piece of source; a half that is not written there is `*`.

    >>> sorted(found_in('failpoint("ack.before"); failpoint(f"{operation}.after_commit")'))
    ['*.after_commit', 'ack.before']
    """
    return {
        _text(call.args[0])
        for call in _calls(source)
        if _name(call.func) == "failpoint" and call.args
    }


def operations_in(source: str) -> set[str]:
    """The names of all operations that are done in a transaction.

    >>> sorted(operations_in('self.consume("ack", work); self._change("bind", work); f("x", y)'))
    ['ack', 'bind']
    """
    return {
        argument.value
        for call in _calls(source)
        if _name(call.func) in TRANSACTIONS
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }


def failpoints(*, without: Iterable[str]) -> set[str]:
    """All of the product but those in some of its folders."""
    points: set[str] = set()
    left_out = [SOURCE / folder for folder in without]
    for path in SOURCE.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if "failpoint" in source and not any(map(path.is_relative_to, left_out)):
            for name in found_in(source):
                points |= _whole(name, path.parent) if "*" in name else {name}
    return points


def _whole(name: str, folder: Path) -> set[str]:
    """The names that it is the half of: one for each operation of the driver."""
    sources = (path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    return {name.replace("*", each) for source in sources for each in operations_in(source)}


def _calls(source: str) -> Iterator[ast.Call]:
    return (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))


def _name(function: ast.expr) -> str | None:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else None


def _text(argument: ast.expr) -> str:
    if isinstance(argument, ast.Constant):
        return str(argument.value)
    parts = argument.values if isinstance(argument, ast.JoinedStr) else [argument]
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in parts)
