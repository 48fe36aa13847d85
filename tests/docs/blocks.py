"""The programs on pages that need more than Python, for the tests that run them.

The note before such a program names the test file that runs it:
`<!-- not run: needs a Redis; tests/redis/test_page.py runs it -->`. What may follow says when:
`by make faults`, or `where …`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.test_house import BLOCKS, ROOT, Block

NOTE = re.compile(r"not run: (?P<why>\S.*); (?P<file>tests/\S+\.py) runs it(?P<when>| \S.*)")
FAULTS = " by make faults"


@dataclass(frozen=True)
class Left:
    """A program that the test of all pages leaves to another."""

    block: Block
    file: str
    when: str = ""


def left() -> list[Left]:
    """All that are left to others."""
    return [
        Left(block, note["file"], note["when"])
        for block in BLOCKS
        if (note := NOTE.fullmatch(block.note))
    ]


def left_to(file: str, page: str) -> list[Block]:
    """The programs of a page that are left to the tests of a file, in their order.

    Who takes them apart, as in `first, second = left_to(__file__, "docs/shop.md")`, fails if there
    is one more than it runs.
    """
    name = Path(file).relative_to(ROOT).as_posix()
    return [each.block for each in left() if (each.file, each.block.page) == (name, page)]


def changed(block: Block, changes: Mapping[str, str], *, stop_after: str | None = None) -> Block:
    """The same with other addresses; what is to be changed has to be there."""
    code = block.code
    for before, after in changes.items():
        assert before in code, f"{block} has no {before!r}"
        code = code.replace(before, after)
    note = block.note if stop_after is None else f"stop after: {stop_after}"
    return replace(block, code=code, note=note)


def executed(block: Block, **known: Any) -> dict[str, Any]:
    """Run it in this process, for what takes long to start; the names it has bound."""
    names: dict[str, Any] = {"__name__": "__main__", **known}
    exec(compile(block.code, str(block), "exec"), names)
    return names
