"""How commands end: exit codes, one line for an error, nothing secret, nothing made by looking."""

from __future__ import annotations

import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from queuecraft import (
    CircuitOpen,
    ConfigError,
    ConnectionLost,
    PayloadError,
    PublishError,
    QueueError,
    QueueFull,
    TopologyMismatch,
    UnknownQueue,
    Unroutable,
    UnsupportedFeature,
    __version__,
)
from queuecraft.cli import app
from queuecraft.cli.exits import ExitCode, UnknownMessage, sentence
from tests.cli.shell import Shell


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (ConfigError, 2),
        (PayloadError, 2),
        (UnsupportedFeature, 2),
        (TopologyMismatch, 2),
        (ConnectionLost, 3),
        (UnknownQueue, 4),
        (UnknownMessage, 4),
        (Unroutable, 1),
        (PublishError, 1),
        (CircuitOpen, 1),
        (QueueFull, 1),
        (QueueError, 1),
    ],
)
def test_each_kind_of_error_has_its_exit_code(kind: type[QueueError], code: int) -> None:
    assert ExitCode.of(kind("it went wrong")) == code


def test_an_error_names_its_queue_and_message_once() -> None:
    error = QueueError("no room", queue="billing", message_id="m-1")
    assert sentence(error) == "queue 'billing': message m-1: no room"
    assert sentence(QueueError("queue 'a' is full", queue="a")) == "queue 'a' is full"


LOOKING = [
    ("queues",),
    ("topology",),
    ("peek", "billing"),
    ("bind", "billing", "a"),
    ("unbind", "billing", "a"),
    ("move", "billing", "audit"),
    ("purge", "billing", "--yes"),
    ("delete", "billing", "--yes"),
    ("dlq", "list", "billing"),
    ("dlq", "show", "billing", "m-1"),
    ("dlq", "redrive", "billing"),
    ("dlq", "purge", "billing", "--yes"),
    ("queues", "--watch", "1"),
]


@pytest.mark.parametrize("command", LOOKING, ids=" ".join)
def test_looking_makes_no_database(shell: Shell, command: tuple[str, ...]) -> None:
    result = shell(*command)
    assert (result.exit_code, result.stdout) == (3, "")
    assert f"there is no database '{shell.path}' yet" in result.stderr
    assert list(shell.folder.iterdir()) == []


@pytest.mark.parametrize("command", [*LOOKING, ("publish", "a", "1"), ("health",)], ids=" ".join)
def test_a_folder_that_is_not_there_is_a_mistake(shell: Shell, command: tuple[str, ...]) -> None:
    result = shell(*command, "--url", "local://./nodir/queue.db")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"the folder '{shell.folder / 'nodir'}' does not exist" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_database_that_is_not_there_is_named_in_full(shell: Shell) -> None:
    result = shell("queues", "--url", "local://./queue.db")
    assert f"there is no database '{shell.path}' yet" in result.stderr


def test_health_of_a_database_that_is_not_there_is_not_well(shell: Shell) -> None:
    result = shell("health", "--json")
    assert result.exit_code == 3
    told = json.loads(result.stdout)
    assert (told["status"], told["connected"]) == ("unhealthy", False)
    assert list(shell.folder.iterdir()) == []


@pytest.mark.parametrize(
    "command", [*LOOKING, ("publish", "a", "1"), ("declare", "billing"), ("health",)]
)
def test_a_queue_in_memory_makes_no_sense_from_the_shell(
    shell: Shell, command: tuple[str, ...]
) -> None:
    result = shell(*command, "--url", "local://")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "always empty" in result.stderr
    assert "--url local:///" in result.stderr


def test_the_url_given_wins_over_the_environment(shell: Shell, tmp_path: Path) -> None:
    shell.ok("declare", "here")
    other = f"local://{tmp_path / 'other.db'}"
    shell.ok("declare", "there", "--url", other)
    names = [each["name"] for each in shell.json("queues", "--url", other)]
    assert names == ["there", "there.dlq"]


@pytest.mark.parametrize(
    "url",
    ["", "billing", "carrier-pigeon://roof", "local://s3cret@host/x", "amqp://u:s3cret@h:bad"],
)
@pytest.mark.parametrize("option", [(), ("--json",), ("--debug",)])
def test_a_url_that_cannot_work_is_exit_code_2_and_shows_no_password(
    shell: Shell, url: str, option: tuple[str, ...]
) -> None:
    result = shell("queues", "--url", url, *option)
    assert (result.exit_code, result.stdout) == (2, "")
    if "u:" in url:
        assert "s3cret" not in result.stderr


def test_a_bad_setting_in_the_environment_is_exit_code_2(shell: Shell) -> None:
    result = shell("queues", env={"QUEUECRAFT_PREFETCH": "many"})
    assert result.exit_code == 2
    assert "QUEUECRAFT_PREFETCH" in result.stderr


def test_a_file_that_is_no_database_is_one_line_not_a_traceback(shell: Shell) -> None:
    shell.path.write_text("these are not the rows you are looking for\n" * 1000)
    result = shell("queues")
    assert result.exit_code in (2, 3)
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_traceback_is_shown_to_whoever_asks_for_it(shell: Shell) -> None:
    shell.declare("billing")
    assert "Traceback" not in shell("peek", "biling").stderr
    for result in (
        shell("peek", "biling", "--debug"),
        shell("--debug", "peek", "biling"),
        shell("peek", "biling", env={"QUEUECRAFT_DEBUG": "1"}),
    ):
        assert result.exit_code == 4
        assert "Traceback" in result.stderr
        assert "UnknownQueue" in result.stderr


def test_an_error_of_our_own_making_is_one_line_that_tells_nothing_secret(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(work: Coroutine[Any, Any, None]) -> None:
        work.close()
        raise ValueError("s3cret")

    monkeypatch.setattr("queuecraft.cli.queues.run", broken)
    result = shell("topology")
    assert result.exit_code == 1
    assert result.stderr == "error: internal error, ValueError; QUEUECRAFT_DEBUG=1 shows where\n"


@pytest.mark.parametrize(
    "command",
    [
        ("peek", "--json"),
        ("peek", "billing", "--wrong", "--json"),
        ("peek", "billing", "--limit", "x", "--json"),
        ("nonsense", "--json"),
        ("publish", "a", "{", "--json"),
        ("publish", "a", "1", "--delay", "soon", "--json"),
        ("purge", "billing", "--json"),
    ],
)
def test_a_mistake_is_told_as_json_too(shell: Shell, command: tuple[str, ...]) -> None:
    shell.declare("billing", "order.*")
    shell.ok("publish", "order.placed", "1")
    result = shell(*command)
    assert (result.exit_code, result.stdout) == (2, "")
    told = json.loads(result.stderr)
    assert told["error"]
    assert told["exit_code"] == 2


def test_a_mistake_without_json_is_told_to_a_person(shell: Shell) -> None:
    result = shell("peek", "billing", "--limitt", "3")
    assert result.exit_code == 2
    assert "--limit" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("--url", "local:///q.db", "queues"), "--url comes after the command"),
        (("run", "shop:qc", "--url", "local:///q.db"), "the application names its broker itself"),
        (("run", "shop:qc", "--numbr", "1"), "there is no option --numbr; queuecraft run --help"),
        (("peek", "billing", "--limt", "3"), "did you mean --limit?"),
        (("peek", "billing", "--limit", "0"), "'--limit' / '-n': expected 1 or more"),
        (("peek", "billing", "--limit", "x"), "'--limit' / '-n': expected a whole number"),
        (("dlq", "redrive", "billing", "--rate", "x"), "'--rate': expected a number"),
        (("run", "shop:qc", "--health-port", "99999"), "--health-port: expected a port"),
        (("queues", "--watch", "0"), "--watch: 0: expected 0.1 seconds or more"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_a_wrong_option_is_told_in_our_own_words(
    shell: Shell, command: tuple[str, ...], told: str
) -> None:
    result = shell(*command, env={"COLUMNS": "200"})
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in " ".join(result.stderr.split())
    assert "--number" not in result.stderr
    assert "Input should" not in result.stderr


@pytest.mark.parametrize("option", ["--version", "version"])
def test_the_version_is_told(option: str) -> None:
    result = CliRunner().invoke(app, [option])
    assert (result.exit_code, result.stdout) == (0, f"{__version__}\n")


@pytest.mark.parametrize("command", ["run", "dlq redrive", "dlq", "health", ""])
def test_help_flows_and_names_no_types_of_python(command: str) -> None:
    shown = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "79"}).stdout
    for word in ("<bool>", "list[", "<int", "<float"):
        assert word not in shown
    if command == "run":
        text = " ".join(shown.split("╭")[0].split())
        assert "SIGHUP restarts them one by one. Ends with 0" in text
        lines = [line.rstrip() for line in shown.split("╭")[0].splitlines()]
        assert not any(line.endswith("what it was") for line in lines)


def test_help_is_there_for_every_command() -> None:
    commands = [
        *("publish", "queues", "topology", "peek", "declare", "bind", "unbind", "move", "purge"),
        *("delete", "health", "dlq list", "dlq groups", "dlq show", "dlq redrive", "dlq purge"),
    ]
    for command in commands:
        result = CliRunner().invoke(app, [*command.split(), "--help"])
        assert result.exit_code == 0, command
        assert "--url" in result.stdout, command
        assert "--json" in result.stdout, command
