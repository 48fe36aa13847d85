"""A notebook without Jupyter: its cells, and a process that runs them in order.

`python -m tests.examples.notebook FILE` prints, as JSON, what the last line of each cell gives.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any


@dataclass(frozen=True)
class Cell:
    """A cell of code."""

    name: str
    source: str
    raw: dict[str, Any]

    def compiled(self) -> tuple[CodeType, CodeType | None]:
        """Its statements, and the expression at its end, whose value a notebook shows. As in a
        notebook, `await` may stand outside of functions."""
        body = ast.parse(self.source, self.name).body
        last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        statements = compile(ast.Module(body, []), self.name, "exec", flags)
        if not isinstance(last, ast.Expr):
            return statements, None
        return statements, compile(ast.Expression(last.value), self.name, "eval", flags)


def cells_of(notebook: Path) -> list[Cell]:
    """The cells of code, in order."""
    found = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [
        Cell(each["id"], "".join(each["source"]), each)
        for each in found
        if each["cell_type"] == "code"
    ]


def run(cells: list[Cell]) -> dict[str, str]:
    """What each cell shows at its end."""
    names: dict[str, Any] = {"__name__": "__main__"}
    shown: dict[str, str] = {}
    with asyncio.Runner() as runner:

        def value_of(code: CodeType) -> Any:
            found = eval(code, names)
            return runner.run(found) if inspect.iscoroutine(found) else found

        for cell in cells:
            statements, last = cell.compiled()
            value_of(statements)
            if last is not None:
                value = value_of(last)
                shown[cell.name] = value.to_string() if hasattr(value, "to_string") else str(value)
    return shown


if __name__ == "__main__":
    print(json.dumps(run(cells_of(Path(sys.argv[1])))))
