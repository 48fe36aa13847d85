"""Which code was measured: without it, figures of a run mean little later."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

import queuecraft

ROOT: Final = Path(queuecraft.__file__).parents[2]
CODE: Final = ("src", "tests", "benchmarks", "requirements", "pyproject.toml", ":!*/results/*")
"""What makes a difference to a run; not what a run writes."""
UNKNOWN: Final = "unknown"
ELSEWHERE: Final = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")


def commit(root: Path = ROOT) -> str:
    """The commit of the code that is imported, such as `1ccf94a` or `1ccf94a and changes`; ask
    for it before a run, during which it may become another."""
    if not (root / ".git").exists():  # nor is it that of a repository around it
        return UNKNOWN
    try:
        name = git(root, "rev-parse", "--short", "HEAD")
        changes = git(root, "status", "--porcelain", "--", *CODE)
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN
    return f"{name} and changes" if changes else name


def git(root: Path, *words: str) -> str:
    """What it answers there, and nowhere else: to what a hook runs it names another place."""
    answer = subprocess.run(
        ["git", "-C", str(root), *words],
        env={name: value for name, value in os.environ.items() if name not in ELSEWHERE},
        check=True,
        capture_output=True,
        encoding="utf-8",
    )
    return answer.stdout.strip()
