"""Fixtures of the command line's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import Shell, Terminal


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)  # no settings file of anybody else's
    return Shell(tmp_path)


@pytest.fixture
def terminal(shell: Shell) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_terminal(*args: str, **options: Any) -> Terminal:
        opened.append(Terminal(shell, *args, **options))
        return opened[-1]

    yield open_terminal
    for each in opened:
        each.close()
