"""Programs that fork and end, run as programs of their own: pytest's process is no place for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PATIENCE = 40.0

START = """
import os, sys, threading, time
from queuecraft import Event, QueueError
from queuecraft.sync import QueueCraft

url = sys.argv[1]
number = Event("number", int)
"""


def run(program: str, *arguments: str, folder: Path) -> str:
    """What it prints; it has to end well, with no complaint."""
    script = folder / "program.py"
    script.write_text(START + program, encoding="utf-8")
    answer = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", script, *arguments],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if not k.startswith("QUEUECRAFT_")},
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert not answer.stderr, answer.stderr
    return answer.stdout
