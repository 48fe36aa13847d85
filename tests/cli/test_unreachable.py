"""Brokers that are away or let nobody in: which one, where, why, and what to do about it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.brokers.fixtures import do_without
from tests.brokers.installation import Unavailable
from tests.brokers.port import Port
from tests.brokers.rabbitmq import RabbitMQ
from tests.brokers.redis import RedisServer
from tests.cli.shell import Shell

AWAY = "start it, or name another with --url or QUEUECRAFT_URL"


@pytest.fixture
def port() -> Iterator[int]:
    """One on which nobody listens."""
    with Port() as reserved:
        yield reserved.number


@pytest.fixture(scope="module")
def locked() -> Iterator[RedisServer]:
    """A Redis with a password."""
    try:
        server = RedisServer({"requirepass": "s3cret"}).__enter__()
    except Unavailable as reason:
        do_without(f"Redis: {reason}")
    with server:
        yield server


def connection(shell: Shell, url: str) -> dict[str, Any]:
    """What the doctor says of it."""
    result = shell("doctor", "--json", "--no-writes", "--url", url)
    assert result.exit_code == 3
    lines = map(json.loads, result.stdout.splitlines())
    return next(each for each in lines if each["about"] == "connection")


@pytest.mark.parametrize("scheme", ["amqp", "redis", "kafka"])
@pytest.mark.parametrize(
    "command", [("queues",), ("publish", "a", "1"), ("delayed", "add", "a", "1", "--delay", "1")]
)
def test_a_port_where_nobody_listens_is_told_with_its_broker_and_what_to_do(
    shell: Shell, port: int, scheme: str, command: tuple[str, ...]
) -> None:
    more = {"redis": "?mode=list"}.get(scheme, "")
    login = "" if scheme == "kafka" else "ada:s3cret@"
    result = shell(*command, "--url", f"{scheme}://{login}127.0.0.1:{port}{more}")
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith(f"error: {scheme}://127.0.0.1:{port} cannot be used: ")
    assert result.stderr.endswith(f"Connection refused; {AWAY}\n") or scheme == "kafka"
    assert AWAY in result.stderr
    assert "Errno" not in result.stderr
    assert "s3cret" not in result.stderr


def test_health_names_the_broker_that_does_not_answer(shell: Shell, port: int) -> None:
    result = shell("health", "--url", f"redis://:s3cret@127.0.0.1:{port}?mode=list")
    assert result.exit_code == 3
    assert result.stdout == (
        f"unhealthy: redis://127.0.0.1:{port} cannot be used: 127.0.0.1:{port}: Connection "
        f"refused; {AWAY}\n"
    )


@pytest.mark.parametrize(
    ("login", "said"),
    [
        (":hunter2@", "the password is wrong"),
        ("ada:hunter2@", "user 'ada' or the password is wrong, or the user is disabled"),
        ("", "the server wants a password, and none was given"),
    ],
)
def test_a_wrong_password_of_redis_is_not_mended_by_starting_it(
    shell: Shell, locked: RedisServer, login: str, said: str
) -> None:
    url = f"redis://{login}127.0.0.1:{locked.port()}?mode=list"
    found = connection(shell, url)
    assert found["text"] == f"127.0.0.1:{locked.port()}: {said}"
    assert found["todo"].startswith("give the right one in the URL")
    told = shell("queues", "--url", url)
    assert told.exit_code == 3
    assert f"{said}; give the right one in the URL" in told.stderr
    assert "hunter2" not in told.stderr + str(found)


def test_a_wrong_password_of_rabbitmq_is_not_mended_by_starting_it(
    shell: Shell, rabbitmq: RabbitMQ
) -> None:
    rabbitmq.start()
    url = rabbitmq.url.replace("guest:guest@", "guest:hunter2@")
    found = connection(shell, url)
    assert "the password is wrong" in found["text"]
    assert found["todo"].startswith("mend the user name or the password")


def test_a_virtual_host_that_is_not_there_is_to_be_made(shell: Shell, rabbitmq: RabbitMQ) -> None:
    rabbitmq.start()
    found = connection(shell, rabbitmq.url.replace("/%2F", "/nowhere"))
    assert "there is no virtual host 'nowhere'" in found["text"]
    assert "rabbitmqctl add_vhost" in found["todo"]
