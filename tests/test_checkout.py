"""The commit that pages of measurements name."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.checkout import commit, git

pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="there is no git here")


IDENTITY = ("-c", "user.name=Nobody", "-c", "user.email=nobody@example.com")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout of its own, with code, a page and results."""
    for name in ("src/code.py", "docs/page.md", "tests/results/run.json"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, *IDENTITY, "commit", "-m", "Begin")
    return tmp_path


def test_a_checkout_without_changes_has_the_name_of_its_commit(root: Path) -> None:
    assert re.fullmatch(r"[0-9a-f]{7,}", commit(root))


@pytest.mark.parametrize("name", ["src/code.py", "tests/new.py"])
def test_changed_code_is_told(root: Path, name: str) -> None:
    (root / name).write_text("changed = True\n", encoding="utf-8")
    assert re.fullmatch(r"[0-9a-f]{7,} and changes", commit(root))


@pytest.mark.parametrize("name", ["docs/page.md", "tests/results/run.json"])
def test_what_a_run_has_written_is_no_change(root: Path, name: str) -> None:
    (root / name).write_text("measured\n", encoding="utf-8")
    assert re.fullmatch(r"[0-9a-f]{7,}", commit(root))


def test_what_is_no_checkout_has_none_even_inside_of_another(root: Path) -> None:
    assert commit(root / "src") == "unknown"
