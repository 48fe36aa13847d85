"""A small disk that can run full, and the right to make one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.faults.disk import mount, run

SIZE: Final = "128m"
MARK: Final = "FAULT_MATRIX_MOUNTS"


class NoRoom(Exception):
    """No disk can be made here."""


def seclude(arguments: Sequence[str]) -> None:
    """Start this program anew where its mounts are seen by nobody else and end with it.

    Where that is not allowed, it goes on as it is, and has no small disk.
    """
    if MARK in os.environ:
        return
    command = ["unshare", "--mount"]
    try:
        probe = [*command, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
        subprocess.run(probe, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return
    os.environ[MARK] = "private"
    os.execvp(command[0], [*command, sys.executable, "-m", "tests.faults.matrix", *arguments])


@contextmanager
def small_disk(folder: Path) -> Generator[Path]:
    """A disk of its own under a folder, gone afterwards."""
    if os.environ.get(MARK) != "private":
        raise NoRoom("this user may not mount a small disk here; run the matrix as root")
    disk = folder / "disk"
    disk.mkdir()
    mount("-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(disk))
    try:
        yield disk
    finally:
        run("umount", "--lazy", str(disk))
