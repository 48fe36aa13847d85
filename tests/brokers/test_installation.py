"""Installing what is missing, with an apt-get that only pretends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.brokers import __main__ as command
from tests.brokers import installation
from tests.brokers.fixtures import do_without
from tests.brokers.installation import Program, Unavailable, ensure
from tests.brokers.kafka import VARIABLE as KAFKA_VARIABLE
from tests.brokers.rabbitmq import VARIABLE
from tests.brokers.redis import VARIABLE as REDIS_VARIABLE

# "Installs" the program, if the list of packages is new enough, and lets the policy say whether
# its service may start, as a package's own script does.
APT = """#!/bin/sh
here="${0%/*}"
echo "$@" >> "$here/calls"
case "$*" in
    *update) : > "$here/updated" ;;
    *install*)
        [ -e "$here/updated" ] || exit 100
        "$here/policy" broker start || echo "start forbidden: $?" >> "$here/calls"
        printf '#!/bin/sh\\n' > "$here/broker" && /bin/chmod +x "$here/broker" ;;
esac
"""
BROKER = Program("broker", "broker-server")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the only programs there are: the real apt-get must be out of reach."""
    script(tmp_path / "apt-get", APT)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path


def script(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def calls(machine: Path) -> list[str]:
    path = machine / "calls"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def test_what_is_there_is_not_installed(machine):
    script(machine / "broker", "#!/bin/sh\n")
    ensure([BROKER], policy=machine / "policy")
    assert calls(machine) == []


def test_what_is_missing_is_installed_and_its_service_stays_down(machine):
    ensure([BROKER], policy=machine / "policy")
    assert BROKER.find() == str(machine / "broker")
    first, update, second, forbidden = calls(machine)
    assert first == second
    assert first.endswith("install broker-server")
    assert update.endswith("update")
    assert forbidden == "start forbidden: 101"
    assert not (machine / "policy").exists()


def test_a_policy_that_forbids_already_is_left_alone(machine):
    script(machine / "policy", "#!/bin/sh\n# theirs\nexit 101\n")
    ensure([BROKER], policy=machine / "policy")
    assert BROKER.find() is not None
    assert "theirs" in (machine / "policy").read_text(encoding="utf-8")


def test_a_policy_that_would_start_a_service_is_respected_by_not_installing(machine):
    script(machine / "policy", "#!/bin/sh\nexit 0\n")
    with pytest.raises(Unavailable, match="would let the package start"):
        ensure([BROKER], policy=machine / "policy")
    assert calls(machine) == []
    assert (machine / "policy").exists()


def test_an_installation_that_brings_nothing_is_reported(machine):
    script(machine / "apt-get", "#!/bin/sh\nexit 100\n")
    with pytest.raises(Unavailable, match="could not install broker-server"):
        ensure([BROKER], policy=machine / "policy")
    assert not (machine / "policy").exists()


def test_a_plain_user_is_told_the_command(machine, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Unavailable, match="sudo apt-get install broker-server"):
        ensure([BROKER], policy=machine / "policy")
    assert calls(machine) == []


def test_a_machine_without_apt_is_told_what_is_missing(machine):
    (machine / "apt-get").unlink()
    with pytest.raises(Unavailable, match="broker-server"):
        ensure([BROKER], policy=machine / "policy")


def test_a_program_is_found_where_it_is_kept_before_where_the_path_leads(machine):
    script(machine / "broker", "#!/bin/sh\n")
    script(machine / "real", "#!/bin/sh\n")
    real = str(machine / "real")
    assert Program("broker", "broker-server", (f"{machine}/none", real)).find() == real


@pytest.mark.parametrize("value", ["true", "1", "yes"])
def test_a_missing_broker_fails_in_ci(monkeypatch, value):
    monkeypatch.setenv("CI", value)
    with pytest.raises(pytest.fail.Exception, match="NOT TESTED, no broker"):
        do_without("no broker")


@pytest.mark.parametrize("value", ["", "0", "false"])
def test_a_missing_broker_is_skipped_on_a_laptop(monkeypatch, value):
    monkeypatch.setenv("CI", value)
    with pytest.raises(pytest.skip.Exception, match="NOT TESTED, no broker"):
        do_without("no broker")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, machine: Path) -> Path:
    """A machine where nothing can be installed."""
    for variable in (VARIABLE, REDIS_VARIABLE, KAFKA_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    for brokers in ("RABBITMQ", "REDIS"):
        monkeypatch.setattr(installation, brokers, (BROKER,))
    (machine / "apt-get").unlink()
    return machine


def test_make_test_goes_on_without_a_broker_on_a_laptop(bare, monkeypatch, capsys):
    monkeypatch.delenv("CI", raising=False)
    assert command.install() == 0
    assert "SKIPPED" in capsys.readouterr().err


def test_make_test_stops_without_a_broker_in_ci(bare, monkeypatch, capsys):
    monkeypatch.setenv("CI", "true")
    assert command.install() == 1
    assert "broker-server" in capsys.readouterr().err


def test_nothing_is_installed_if_the_environment_names_the_brokers(bare, monkeypatch):
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv(VARIABLE, "amqp://localhost:5672")
    assert command.install() == 1
    monkeypatch.setenv(REDIS_VARIABLE, "redis://localhost:6379")
    assert command.install() == 1
    monkeypatch.setenv(KAFKA_VARIABLE, "kafka://localhost:9092")
    assert command.install() == 0
