"""A program of an example, started from the root of the repository, and what it says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[2]
NOTHING: Mapping[str, str] = {}


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """That of the tests, without their settings and with these."""
    usual = {k: v for k, v in os.environ.items() if not k.startswith(("QUEUECRAFT_", "SHOP_"))}
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**usual, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **settings}


class Program:
    """`python -m …`, in a process that is gone when the block ends."""

    def __init__(
        self,
        *arguments: str,
        output: Path,
        folder: Path = ROOT,
        settings: Mapping[str, str] = NOTHING,
    ) -> None:
        self._output = output
        with output.open("ab") as written:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                cwd=folder,
                env=environment(settings),
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        """Everything it has said."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def wait(self, timeout: float) -> int:
        """How it ended, once it has."""
        return self._process.wait(timeout)

    def kill(self) -> None:
        """End it as `kill -9` does; it is gone when this returns."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
