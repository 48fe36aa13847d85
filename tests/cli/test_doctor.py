"""`queuecraft doctor`: what is wrong, and what to do about it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from queuecraft.cli.doctor import machine, settings
from queuecraft.cli.doctor.command import SIGNS
from queuecraft.cli.doctor.finding import Finding
from queuecraft.model.errors import ConfigError
from tests.cli.shell import Shell, Terminal
from tests.runtime.support import dead_letter

Found = dict[str, dict[str, Any]]


def examine(shell: Shell, *options: str, **env: str) -> tuple[int, Found]:
    result = shell("doctor", "--json", *options, env=env)
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    return result.exit_code, {each["about"]: each for each in lines}


def test_where_nothing_is_wrong_all_is_well_and_nothing_is_left_behind(shell: Shell) -> None:
    told = shell.ok("doctor")
    assert told.endswith("\n\nAll is well.\n")
    assert "✓ rights           made a queue, published, consumed and removed it" in told
    assert shell.json("queues") == []


def test_each_thing_is_a_line_for_programs(shell: Shell) -> None:
    code, found = examine(shell)
    assert code == 0
    assert {each["verdict"] for each in found.values()} <= set(SIGNS)
    assert found["settings"]["text"] == f"the broker is {shell.url}"
    assert found["connection"]["verdict"] == "ok"
    assert {"python", "spark", "java", "open files", "sqlite"} <= set(found)


def test_nothing_is_made_at_the_broker_if_that_is_not_wanted(shell: Shell) -> None:
    shell.declare("billing")
    _, found = examine(shell, "--no-writes")
    assert found["rights"]["verdict"] == "skipped"


def test_no_database_is_made_if_that_is_not_wanted(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "none.db"
    code, found = examine(shell, "--no-writes", QUEUECRAFT_URL=f"local://{path}")
    assert code == 1
    assert "there is no database" in found["settings"]["text"]
    assert not path.exists()


def test_a_broker_that_is_away_is_told_with_what_to_do(shell: Shell) -> None:
    url = "redis://127.0.0.1:1/0?mode=list"
    code, found = examine(shell, "--timeout", "2s", QUEUECRAFT_URL=url)
    assert code == 3
    assert found["connection"]["verdict"] == "failed"
    assert "--url" in found["connection"]["todo"]
    assert "rights" not in found


def test_a_setting_that_is_wrong_is_named_and_the_rest_is_looked_at_still(shell: Shell) -> None:
    code, found = examine(shell, QUEUECRAFT_CONCURENCY="8")
    assert code == 1
    assert "QUEUECRAFT_CONCURENCY is no setting" in found["settings"]["text"]
    assert found["python"]["verdict"] == "ok"
    assert "QUEUECRAFT_CONCURENCY" in found["sources"]["text"]


def test_secrets_are_named_and_never_shown(shell: Shell) -> None:
    url = "redis://ada:hunter2@127.0.0.1:1/0?mode=list"
    token = "3f1c-a-token-of-some-length"
    result = shell("doctor", env={"QUEUECRAFT_URL": url, "QUEUECRAFT_TOKEN": token})
    assert "hunter2" not in result.output
    assert token not in result.output
    assert "QUEUECRAFT_TOKEN" in result.output


def test_queues_in_trouble_are_warnings_with_a_command_to_type(shell: Shell) -> None:
    shell.declare("billing", "order.*")
    shell.ok("publish", "order.placed", "1")
    shell.put(dead_letter("m-1"))
    code, found = examine(shell)
    assert code == 0
    assert found["billing"]["verdict"] == "warning"
    assert found["billing"]["text"] == "1 dead letter; 1 ready and nobody consumes"
    assert "queuecraft dlq groups" in found["billing"]["todo"]


def test_a_paused_queue_with_messages_is_a_warning_with_a_command_to_type(shell: Shell) -> None:
    shell.declare("billing", "order.*")
    shell.ok("publish", "order.placed", "1")
    shell.ok("pause", "billing")
    code, found = examine(shell)
    assert (code, found["billing"]["text"]) == (0, "1 ready, and it is paused")
    assert found["billing"]["todo"].startswith("queuecraft resume billing")
    assert shell("resume", "billing").stdout.startswith("Queue 'billing' is resumed")
    again = shell("resume", "billing")
    assert (again.stdout, again.stderr) == ("", "note: queue 'billing' was not paused\n")


def test_a_file_that_is_no_database_is_a_mistake_in_the_settings(
    shell: Shell, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text(100 * "no database\n", encoding="utf-8")
    code, found = examine(shell, "--url", f"local:///{tmp_path}/notes.txt")
    assert code == 1
    assert found["settings"]["text"].endswith("is no database")
    assert found["settings"]["todo"].startswith("give the path of a file of its own")


def test_what_a_command_has_left_behind_is_told(shell: Shell) -> None:
    shell.declare("queuecraft.bench.0a1b2c3d")
    code, found = examine(shell)
    left = found["queuecraft.bench.0a1b2c3d"]
    assert (code, left["verdict"]) == (0, "warning")
    assert left["todo"] == "queuecraft delete queuecraft.bench.0a1b2c3d --yes"


def test_pauses_need_no_worker(shell: Shell) -> None:
    shell.declare("billing")
    shell.ok("pause", "billing")
    shell.ok("resume", "billing")
    code, found = examine(shell)
    assert code == 0
    assert [each for each in found.values() if each["verdict"] == "warning"] == []
    assert found["queues"]["text"].startswith("2, ")


def test_a_missing_package_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "find_spec", lambda name: None)
    found = {each.about: each for each in machine.machine("kafka")}
    assert found["confluent-kafka"].verdict == "failed"
    assert found["confluent-kafka"].todo == "pip install 'queuecraft[kafka]'"
    assert found["uvloop"].verdict == "warning"
    assert found["spark"].verdict == "skipped"
    assert found["http"].verdict == "skipped"
    redis = {each.about: each for each in machine.machine("redis")}
    assert redis["hiredis"].verdict == "failed"  # there is no Redis without it


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Path:
        raise ConfigError("Spark needs Java 17 or newer, and there is none here; install it")

    monkeypatch.setattr(machine, "find_java", none)


@pytest.mark.usefixtures("no_java")
def test_a_missing_java_is_told_with_what_to_install() -> None:
    (java,) = (each for each in machine.machine("local") if each.about == "java")
    assert java == Finding(
        about="java",
        verdict="warning",
        text="Spark needs Java 17 or newer, and there is none here",
        todo="install it",
    )


@pytest.mark.usefixtures("no_java")
def test_a_missing_java_is_a_warning_until_the_lake_is_asked_for(shell: Shell) -> None:
    code, found = examine(shell)
    assert (code, found["java"]["verdict"]) == (0, "warning")
    code, found = examine(shell, "--lake")
    assert (code, found["java"]["verdict"]) == (1, "failed")


def test_a_missing_spark_is_broken_only_if_the_lake_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "find_spec", lambda name: None)
    (spark,) = (each for each in machine.machine("local", lake=True) if each.about == "spark")
    assert spark.verdict == "failed"
    assert spark.todo == "pip install 'queuecraft[spark]'"


def test_few_open_files_and_a_full_disk_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(machine, "FILES", 10**9)
    (files,) = (each for each in machine.machine("local") if each.about == "open files")
    assert files.verdict == "warning"
    monkeypatch.setattr(settings, "ROOM", 2**60)
    monkeypatch.setattr(settings, "FIXED", (99,))
    found, qc = settings.settings(f"local://{tmp_path / 'queue.db'}", writes=True)
    assert qc is not None
    assert [each.about for each in found if each.verdict == "warning"] == ["file", "sqlite"]


def test_a_folder_that_cannot_be_written_is_told(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuecraft.cli.doctor.settings.os.access", lambda path, mode: False)
    found, _ = settings.settings(shell.url, writes=True)
    (file,) = (each for each in found if each.about == "file")
    assert file.verdict == "failed"


def test_tokens_that_will_not_do_are_told(shell: Shell) -> None:
    same = "one-and-the-same-secret"
    code, found = examine(shell, QUEUECRAFT_TOKEN=same, QUEUECRAFT_READ_TOKEN=same)
    assert code == 1
    assert "are the same" in found["tokens"]["text"]


def test_a_person_sees_signs_and_colours(terminal: Callable[..., Terminal]) -> None:
    code, seen = terminal("doctor").finish()
    assert code == 0
    assert "\x1b[32m✓" in seen
    assert "All is well." in seen
