"""The command line as a person and a script meet it."""

from __future__ import annotations

import subprocess
import sys

from typer.testing import CliRunner

from queuecraft import __version__
from queuecraft.cli import app


def test_the_demo_tells_its_story_and_ends_by_itself() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "queuecraft", "demo"],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for told in ("Unroutable", "retry", "dead letter", "redriven", "invoices 12 of 12", "Done."):
        assert told in done.stdout
    assert "\x1b[" not in done.stdout, "no colours where nobody sees them"
    assert done.stderr == ""


def test_the_version_is_printed_plainly() -> None:
    result = CliRunner().invoke(app, ["version"])
    assert result.stdout.strip() == __version__


def test_no_command_shows_help() -> None:
    result = CliRunner().invoke(app, [])
    assert "demo" in result.output
