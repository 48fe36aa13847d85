"""The command line as a person and a script meet it."""

from __future__ import annotations

from typer.testing import CliRunner

from queuecraft import __version__
from queuecraft.cli import app


def test_the_version_is_printed_plainly() -> None:
    result = CliRunner().invoke(app, ["version"])
    assert result.stdout.strip() == __version__


def test_no_command_shows_help() -> None:
    result = CliRunner().invoke(app, [])
    assert "demo" in result.output
