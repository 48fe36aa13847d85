"""`queuecraft outbox`."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from queuecraft import Event
from queuecraft.outbox import Outbox
from tests.cli.shell import Shell

number = Event("number", int)
outbox = Outbox()


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("QUEUECRAFT_OUTBOX", f"sqlite:///{tmp_path}/shop.db")
    sqlite3.connect(tmp_path / "shop.db").close()
    made = Shell(tmp_path)
    made.ok("outbox", "create")
    return made


@pytest.fixture
def shop(shell: Shell) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(shell.folder / "shop.db")) as connection:
        yield connection


def test_what_waits_is_relayed_once(shell: Shell, shop: sqlite3.Connection) -> None:
    shell.declare("numbers", "number")
    with shop:
        outbox.publish(shop, number, 1)
    assert shell.json("outbox", "status")[0]["waiting"] == 1

    shell.ok("outbox", "relay", "--once")

    assert [each["payload"] for each in shell.json("peek", "numbers")] == [1]
    assert shell.ok("outbox", "status") == "0 waiting; 0 refused\n"


def test_where_there_are_no_tables_it_says_how_to_make_them(shell: Shell) -> None:
    result = shell("outbox", "status", "--table", "elsewhere")
    assert result.exit_code == 2
    assert "no such table" in result.stderr
    assert "queuecraft outbox create" in result.stderr


def test_a_relay_runs_until_it_is_told_to_end(shell: Shell, shop: sqlite3.Connection) -> None:
    shell.declare("numbers", "number")
    place = f"sqlite:///{shell.folder}/shop.db"
    told: list[bytes] = []
    command = ("outbox", "relay", "--database", place)
    with shell.process(*command, stderr=subprocess.STDOUT) as relay:
        assert relay.stdout is not None
        for line in relay.stdout:
            told.append(line)
            if b"outbox: relaying" in line:
                relay.send_signal(signal.SIGTERM)
        assert relay.wait(30) == 0, told
    assert any(b"outbox: relaying" in line for line in told)


def test_a_relay_that_is_told_to_end_before_it_has_begun_ends_well(shell: Shell) -> None:
    settings = shell.folder / "settings.toml"
    os.mkfifo(settings)  # which it opens while it gets ready, and reads until the test closes it
    command = ("outbox", "relay", "--database", f"sqlite:///{shell.folder}/shop.db")
    with shell.process(*command, env={"QUEUECRAFT_CONFIG": str(settings)}) as relay:
        with settings.open("wb"):
            relay.send_signal(signal.SIGTERM)
            told = relay.communicate(timeout=30)
        assert (relay.returncode, told) == (0, (b"", b""))


def test_refused_messages_are_listed_put_back_and_discarded(
    shell: Shell, shop: sqlite3.Connection
) -> None:
    with shop:
        for each in range(3):
            outbox.publish(shop, "lost", each, message_id=f"m-{each}", key="\x1b[31m")
        shop.execute("UPDATE queuecraft_outbox SET failed_at = 1.0, error = 'no \x1b[31m queue'")
    listed = shell.json("outbox", "list")
    assert [each["id"] for each in listed] == ["m-0", "m-1", "m-2"]
    assert "\x1b" not in shell.ok("outbox", "list")
    assert shell.ok("outbox", "put-back", "m-1") == "1 message will be tried again.\n"
    assert shell("outbox", "put-back", "m-9").exit_code == 4
    assert shell("outbox", "discard").exit_code == 2
    assert shell.json("outbox", "discard", "--yes") == [{"discarded": 2}]
    assert shell.json("outbox", "status") == [
        {"waiting": 1, "oldest_age": pytest.approx(0, abs=60), "refused": 0}
    ]


def test_the_sql_of_the_tables_can_be_printed(shell: Shell, tmp_path: Path) -> None:
    assert "BYTEA" in shell.ok("outbox", "ddl", "postgresql", "--table", "shop.outbox")
    made = shell.ok("outbox", "ddl", "sqlite")
    with closing(sqlite3.connect(":memory:")) as other:
        other.executescript(made)
        outbox.publish(other, number, 1)


def test_mistakes_are_told_without_the_password(shell: Shell) -> None:
    def fails(*args: str, **env: str) -> Any:
        result = shell("outbox", *args, "--json", env={"QUEUECRAFT_OUTBOX": "", **env})
        assert "s3cret" not in result.output
        return result.exit_code, json.loads(result.stderr.splitlines()[-1])["error"]

    code, text = fails("status")
    assert code == 2
    assert "--database" in text
    code, text = fails("status", "--database", "mysql://shop:s3cret@db/shop")
    assert code == 2
    code, text = fails("status", "--database", f"sqlite:///{shell.folder}/nowhere.db")
    assert code == 2
    assert f"there is no database '{shell.folder}/nowhere.db'; an outbox is kept in" in text
    code, text = fails("status", "--database", "postgresql://shop:s3cret@127.0.0.1:1/shop")
    assert code == 1


@pytest.mark.parametrize("command", [("relay", "--once"), ("create",), ("status",)])
@pytest.mark.parametrize("place", ["nowhere.db", "gone/shop.db"])
def test_a_missing_database_is_told_with_advice_that_helps(
    shell: Shell, command: tuple[str, ...], place: str
) -> None:
    result = shell("outbox", *command, "--database", f"sqlite:///{shell.folder}/{place}")
    assert result.exit_code == 2
    assert f"there is no database '{shell.folder}/{place}'" in result.stderr
    assert "name that, or start the application first if it makes the file" in result.stderr
    assert "outbox create" not in result.stderr  # which cannot help
    assert not (shell.folder / place).exists()
