"""Fixtures of the command line's tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from tests.cli.shell import Shell, Terminal


@pytest.fixture(scope="session", autouse=True)
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compile once what hundreds of processes import, also where Python is told to keep nothing."""
    folder = tmp_path_factory.mktemp("compiled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPYCACHEPREFIX", str(folder))
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        url = f"local://{folder / 'queue.db'}"
        command = [sys.executable, "-m", "queuecraft", "declare", "any", "--url", url]
        subprocess.run(command, env=environment, cwd=folder, stdout=subprocess.DEVNULL, check=True)
        yield


@pytest.fixture(scope="session", autouse=True)
def built() -> Iterator[None]:
    """Build the commands once: as a process would, and not for each of a thousand calls."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", cache(get_command))
        yield


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
