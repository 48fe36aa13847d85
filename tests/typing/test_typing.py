"""What type checkers say about the API: nothing about right use, something about each wrong one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
RIGHT, WRONG = HERE / "right.py", HERE / "wrong.py"
MARK = "# E: "

Complaints: TypeAlias = dict[int, list[str]]
"""By line, what a checker says of it."""


def run(*command: str) -> str:
    """What a checker prints; an exit code of 1 means that it found something."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def mypy(file: Path, tmp_path: Path) -> Complaints:
    """As a user would run it: strict, with nothing of our own settings."""
    output = run(
        sys.executable,
        *("-m", "mypy", "--strict", "--config-file=", "--output=json", "--explicit-package-bases"),
        *("--cache-dir", str(ROOT / ".mypy_cache" / "typing"), str(file.relative_to(ROOT))),
    )
    found: Complaints = {}
    for line in filter(None, output.splitlines()):
        said: dict[str, Any] = json.loads(line)
        assert said["file"] == str(file.relative_to(ROOT)), f"{said['file']}: {said['message']}"
        if said["severity"] == "error":
            found.setdefault(said["line"], []).append(said["message"])
    return found


def basedpyright(file: Path, tmp_path: Path) -> Complaints:
    """Strict, which for this checker is short of `recommended`."""
    settings = {
        "include": [str(file)],
        "extraPaths": [str(ROOT), str(ROOT / "src")],
        "pythonVersion": "3.11",
        "typeCheckingMode": "strict",
    }
    project = tmp_path / "pyrightconfig.json"
    project.write_text(json.dumps(settings))
    command = ("-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable)
    output = run(sys.executable, *command, "--project", str(project))
    report: dict[str, Any] = json.loads(output)
    assert report["summary"]["filesAnalyzed"] == 1
    found: Complaints = {}
    for said in report["generalDiagnostics"]:
        if said["severity"] == "error":
            line: int = said["range"]["start"]["line"] + 1
            found.setdefault(line, []).append(said["message"])
    return found


Checker: TypeAlias = Callable[[Path, Path], Complaints]
both = pytest.mark.parametrize("checker", [mypy, basedpyright])


@both
@pytest.mark.timeout(300)
def test_right_use_pleases_the_checker(checker: Checker, tmp_path: Path) -> None:
    assert checker(RIGHT, tmp_path) == {}


@both
@pytest.mark.timeout(300)
def test_every_wrong_use_is_an_error_and_nothing_else_is(checker: Checker, tmp_path: Path) -> None:
    lines = WRONG.read_text(encoding="utf-8").splitlines()
    marked = {number for number, line in enumerate(lines, 1) if MARK in line}
    found = checker(WRONG, tmp_path)
    unseen = [f"{number}: {lines[number - 1].strip()}" for number in sorted(marked - found.keys())]
    unasked = {lines[number - 1]: said for number, said in found.items() if number not in marked}
    assert len(marked) > 90
    assert unseen == []
    assert unasked == {}


@pytest.mark.timeout(300)
def test_a_wrong_payload_is_told_what_was_expected(tmp_path: Path) -> None:
    lines = WRONG.read_text(encoding="utf-8").splitlines()
    line = next(n for n, text in enumerate(lines, 1) if "text is no order" in text)
    for checker in (mypy, basedpyright):
        assert any("Order" in text for text in checker(WRONG, tmp_path)[line])
