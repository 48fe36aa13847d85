"""Commands where a package of an extra is not installed: they say what to install."""

from __future__ import annotations

import json

import pytest

from tests.cli.shell import Shell

WITHOUT = "import sys; sys.modules[{!r}] = None; from queuecraft.cli import main; main()"

BROKERS = [
    ("amqp://localhost:1", "pamqp", "rabbitmq"),
    ("redis://localhost:1?mode=list", "hiredis", "redis"),
    ("kafka://localhost:1", "confluent_kafka", "kafka"),
]


def told(shell: Shell, module: str, *command: str) -> tuple[int, str, str]:
    return shell.finished(*command, program=("-c", WITHOUT.format(module)))


@pytest.mark.parametrize(("url", "module", "extra"), BROKERS)
def test_a_broker_whose_package_is_missing_names_what_to_install(
    shell: Shell, url: str, module: str, extra: str
) -> None:
    code, out, err = told(shell, module, "queues", "--url", url)
    scheme, package = url.partition("://")[0], module.replace("_", "-")
    install = f"pip install 'queuecraft[{extra}]'"
    assert (code, out) == (2, "")
    assert err == f"error: {scheme}:// needs the package {package}; run: {install}\n"


@pytest.mark.parametrize(("url", "module", "extra"), BROKERS)
def test_the_doctor_names_what_to_install_and_looks_at_the_rest(
    shell: Shell, url: str, module: str, extra: str
) -> None:
    code, out, err = told(shell, module, "doctor", "--json", "--url", url)
    found = {each["about"]: each for each in map(json.loads, out.splitlines())}
    assert (code, err) == (1, "")
    assert found["settings"]["verdict"] == "failed"
    assert found["settings"]["todo"] == f"pip install 'queuecraft[{extra}]'"
    assert found["python"]["verdict"] == "ok"


@pytest.mark.parametrize(
    ("command", "module", "extra"),
    [
        (("lake", "compact", "lake"), "pyarrow", "spark"),
        (("lake", "expire", "lake", "--older-than", "1d"), "pyarrow", "spark"),
        (("lake", "replay", "lake", "--to", "billing"), "pyarrow", "spark"),
        (("lake", "replays", "lake"), "pyarrow", "spark"),
        (("serve",), "fastapi", "http"),
    ],
)
def test_a_command_whose_package_is_missing_names_what_to_install(
    shell: Shell, command: tuple[str, ...], module: str, extra: str
) -> None:
    shell.declare("billing")
    code, _, err = told(shell, module, *command)
    assert code == 2
    assert f"needs the package {module}" in err
    assert f"pip install 'queuecraft[{extra}]'" in err


def test_a_module_that_is_no_package_of_an_extra_stays_an_internal_error(shell: Shell) -> None:
    code, _, err = told(shell, "queuecraft.drivers.redis.lists", "queues", "--url", "redis://a")
    assert code == 1
    assert "internal error, ModuleNotFoundError" in err
