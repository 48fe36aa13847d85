"""A note that says who runs a program tells the truth."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import FAULTS, NOTE, Left, changed, left, left_to
from tests.test_house import BLOCKS, ROOT, Block

LEFT = left()
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def marked(node: ast.expr) -> bool:
    return any(isinstance(each, ast.Attribute) and each.attr == "faults" for each in ast.walk(node))


def asked(code: str) -> Iterator[tuple[str, bool]]:
    """The pages whose programs the tests of a file ask for, and whether under `make faults` alone.

    >>> list(asked("@mark.faults\\ndef test_it():\\n    a, b = left_to(__file__, 'docs/a.md')"))
    [('docs/a.md', True)]
    """
    tree = ast.parse(code)
    all_marked = any(
        isinstance(node, ast.Assign)
        and any(isinstance(name, ast.Name) and name.id == "pytestmark" for name in node.targets)
        and marked(node.value)
        for node in tree.body
    )
    for test in tree.body:
        if isinstance(test, FUNCTION) and test.name.startswith("test"):
            late = all_marked or any(marked(each) for each in test.decorator_list)
            for node in ast.walk(test):
                match node:
                    case ast.Call(
                        func=ast.Name(id="left_to"),
                        args=[ast.Name(id="__file__"), ast.Constant(value=str(page))],
                    ):
                        yield page, late
                    case _:
                        pass


def lies(each: Left, root: Path = ROOT) -> str | None:
    """What is wrong with who is said to run a program, if something is."""
    file = root / each.file
    if not file.is_file():
        return f"{each.block}: there is no {each.file}"
    found = {
        late for page, late in asked(file.read_text(encoding="utf-8")) if page == each.block.page
    }
    if not found:
        return f"{each.block}: no test of {each.file} asks for the programs of this page"
    if found != {each.when == FAULTS}:
        return f"{each.block}: {each.file} has the mark `faults`, or has it not; the note differs"
    return None


@pytest.mark.parametrize("each", LEFT, ids=lambda each: str(each.block))
def test_who_is_said_to_run_a_program_does(each: Left) -> None:
    compile(each.block.code, str(each.block), "exec")
    assert lies(each) is None


def test_every_program_runs_or_is_left_to_a_test() -> None:
    named = {str(each.block) for each in LEFT}
    stray = [f"{each}: {each.note}" for each in BLOCKS if not each.runs and str(each) not in named]
    assert stray == [], "nobody runs it; say `not run: why; tests/….py runs it`"


def test_there_are_some() -> None:
    assert {"docs/redis.md", "docs/kafka.md"} <= {each.block.page for each in LEFT}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A made-up repository with a test that reads a page."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_page.py").write_text(
        "def test_it():\n    (block,) = left_to(__file__, 'docs/shop.md')\n"
        "def helper():\n    return left_to(__file__, 'docs/other.md')\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("page", "file", "when", "why"),
    [
        ("docs/shop.md", "tests/test_page.py", "", None),
        ("docs/shop.md", "tests/test_pages.py", "", "there is no tests/test_pages.py"),
        ("docs/orders.md", "tests/test_page.py", "", "no test of tests/test_page.py asks"),
        ("docs/other.md", "tests/test_page.py", "", "no test of tests/test_page.py asks"),
        ("docs/shop.md", "tests/test_page.py", FAULTS, "the note differs"),
    ],
)
def test_a_note_that_lies_is_told(
    shop: Path, page: str, file: str, when: str, why: str | None
) -> None:
    told = lies(Left(Block(page, 1, "", ""), file, when), shop)
    assert told is None if why is None else why in str(told)


@pytest.mark.parametrize(
    "note", ["not run: needs a Redis", "not run: needs a Redis; tests/redis runs it"]
)
def test_a_note_that_names_no_test_is_noticed(note: str) -> None:
    assert NOTE.fullmatch(note) is None


def test_what_is_not_on_the_page_cannot_be_changed() -> None:
    with pytest.raises(AssertionError, match="has no 'amqp://'"):
        changed(Block("page.md", 1, "url = 'redis://'", ""), {"amqp://": "local://"})


def test_nothing_is_left_to_a_file_that_no_note_names() -> None:
    assert left_to(__file__, "docs/kafka.md") == []
