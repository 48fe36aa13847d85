"""`queuecraft report` and `queuecraft lake triage`, as far as they need no Spark."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer

from queuecraft.cli.lake.triage import next_steps
from queuecraft.cli.moment import moment
from queuecraft.pipeline.report.figures import FailureGroup
from tests.cli.shell import Shell

COMMANDS = [("report",), ("lake", "triage")]
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_lake_that_is_not_there_is_refused(shell: Shell, command: tuple[str, ...]) -> None:
    result = shell(*command, "./nowhere")
    assert result.exit_code == 2
    assert "there is no lake at 'nowhere'; is the path right?" in result.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_lake_without_tables_says_how_to_get_them(shell: Shell, command: tuple[str, ...]) -> None:
    Path("lake").mkdir()
    result = shell(*command, "lake", "--no-ingest")
    assert result.exit_code == 2
    assert "has no tables yet; run: queuecraft lake ingest lake" in result.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_time_that_ends_before_it_begins_is_refused(
    shell: Shell, command: tuple[str, ...]
) -> None:
    Path("lake").mkdir()
    result = shell(*command, "lake", "--since", "2030-01-02", "--until", "2030-01-01")
    assert result.exit_code == 2
    assert "nothing lies between 2030-01-02 00:00 UTC and 2030-01-01 00:00 UTC" in result.stderr


def test_a_page_goes_only_into_a_folder_that_is_there(shell: Shell) -> None:
    Path("lake").mkdir()
    result = shell("report", "lake", "--html", "pages/report.html")
    assert result.exit_code == 2
    assert "the folder 'pages' does not exist" in result.stderr


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2030-01-01", "2030-01-01T00:00:00+00:00"),
        ("2030-01-01T09:00Z", "2030-01-01T09:00:00+00:00"),
        ("2030-01-01T09:00+01:00", "2030-01-01T08:00:00+00:00"),
        ("90s", "2030-01-01T11:58:30+00:00"),
        ("1.5h", "2030-01-01T10:30:00+00:00"),
        ("7D", "2029-12-25T12:00:00+00:00"),
    ],
)
def test_a_moment_is_a_date_a_time_or_so_long_ago(text: str, meant: str) -> None:
    assert moment(text, NOON).isoformat() == meant


@pytest.mark.parametrize("text", ["", "soon", "2030-13-01", "-2h", "99999999w", "10:00", "\x1b"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no moment; write 2h or 7d for so long ago"):
        moment(text, NOON)


def test_commands_to_come_next_are_safe_to_paste() -> None:
    from queuecraft.pipeline.jobs.triage import Example, Trouble

    group = FailureGroup("f00", "a; rm -rf ~", "e; ls", None, None, None, 2, None, None)
    archived = Example("m-1", payload=b"{}")
    assert next_steps(Trouble(group, 0, archived), Path("my lake")) == [
        "queuecraft dlq redrive 'a; rm -rf ~' --group f00",
        "queuecraft lake replay 'my lake' --fingerprint f00 --queue 'a; rm -rf ~' --event 'e; ls'",
    ]
    assert next_steps(Trouble(group, 0, Example("m-1")), Path("lake")) == [
        "queuecraft dlq redrive 'a; rm -rf ~' --group f00"
    ]
    nameless = replace(group, queue="billing", event=None)
    assert next_steps(Trouble(nameless, 0, archived), Path("lake"))[1] == (
        "queuecraft lake replay lake --fingerprint f00 --queue billing"
    )


def test_nothing_is_to_be_done_for_what_has_recovered() -> None:
    from queuecraft.pipeline.jobs.triage import Trouble

    group = FailureGroup("f00", "billing", "e", None, None, None, 2, None, None)
    assert next_steps(Trouble(group, 2, None), Path("lake")) == []


def test_a_group_is_told_with_its_example_and_nothing_in_it_can_steer_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from queuecraft.cli.lake.triage import _tell
    from queuecraft.pipeline.jobs.triage import Example, Trouble

    monkeypatch.setattr("queuecraft.cli.output.on_terminal", lambda stream=None: True)
    monkeypatch.setenv("NO_COLOR", "1")
    bad = "\x1b[31m[bold]\u202e"
    seen = datetime(2030, 1, 1, tzinfo=UTC)
    group = FailureGroup("f00", bad, bad, bad, bad, bad, 2, seen, seen, (bad, "m-2"))
    example = Example("m-2", headers={bad: bad}, payload=f'{{"id": "{bad}"}}'.encode())
    _tell(Trouble(group, 1, example), Path("lake"))
    printed = capsys.readouterr().out
    assert all(each.isprintable() or each == "\n" for each in printed)
    lines = printed.splitlines()
    assert lines[0] == "\\x1b[31m[bold]\\u202e: 2 dead letters"
    assert "  recovered  1" in lines
    assert "  example    m-2" in lines
    assert '  {"id": "\\x1b[31m[bold]\\u202e"}' in lines
    replay = "queuecraft lake replay lake --fingerprint f00 --queue "
    assert lines[-2].startswith(f"  or         {replay}")
