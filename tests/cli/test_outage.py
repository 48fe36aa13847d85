"""What commands do when the broker does not answer, or answers no more."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from queuecraft import ConnectionLost, Queue, QueueCraft
from queuecraft.cli import app
from queuecraft.drivers.base import QueueInfo
from queuecraft.testing import FaultyDriver, failing


class Shaky(FaultyDriver):
    """A broker that comes with a queue, and at which somebody presses Ctrl-C some time."""

    interrupt_at = 1_000_000

    async def open(self) -> None:
        await super().open()
        await self.inner.declare(Queue("billing"))
        await self.inner.declare(Queue("audit"))

    async def inspect(self, queues: Sequence[str] | None = None) -> Sequence[QueueInfo]:
        if self.calls["inspect"] >= self.interrupt_at:
            raise KeyboardInterrupt
        return await super().inspect(queues)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Shaky:
    driver = Shaky()

    def craft(url: str | None, *, creates: bool = False) -> QueueCraft:
        return QueueCraft(drivers=[driver], publish_timeout=0.2, reconnect_delay=0.01)

    monkeypatch.setattr("queuecraft.cli.broker.craft", craft)
    monkeypatch.setattr("queuecraft.cli.publish.craft", craft)
    return driver


def run(*args: str, **options: Any) -> Result:
    return CliRunner().invoke(app, list(args), **options)


@pytest.mark.parametrize(
    "command",
    [
        ("queues",),
        ("queues", "--watch", "1"),
        ("topology",),
        ("peek", "billing"),
        ("publish", "a", "1"),
        ("publish", "a", "--lines"),
        ("declare", "more"),
        ("move", "billing", "audit"),
        ("dlq", "list", "billing"),
        ("purge", "billing", "--yes"),
    ],
)
def test_a_broker_that_does_not_answer_is_exit_code_3(
    driver: Shaky, command: tuple[str, ...]
) -> None:
    driver.refuse(opens=100)
    result = run(*command, input="1\n")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "the test refuses the connection" in result.stderr
    result = run(*command, "--json", input="1\n")
    assert result.exit_code == 3
    assert json.loads(result.stderr.splitlines()[-1])["kind"] == "ConnectionLost"


def test_a_broker_that_does_not_answer_is_unhealthy(driver: Shaky) -> None:
    driver.refuse(opens=100)
    result = run("health", "--connection-only")
    assert result.exit_code == 3
    assert result.stdout.startswith("unhealthy: ")


def test_a_connection_lost_in_the_middle_is_exit_code_3_and_the_report_is_told(
    driver: Shaky,
) -> None:
    run("publish", "--queue", "billing", "1", "--count", "250")
    with failing("redrive.after_move", ConnectionLost("the cable is out"), skip=1):
        result = run("move", "billing", "audit")
    assert result.exit_code == 3
    assert result.stderr == "error: the cable is out\n"
    assert result.stdout.startswith("Interrupted: 100 moved")


@pytest.mark.parametrize("option", [(), ("--json",)])
def test_a_watch_goes_on_after_a_lost_connection(driver: Shaky, option: tuple[str, ...]) -> None:
    driver.fail("inspect")
    driver.interrupt_at = 3
    result = run("queues", "--watch", "0.1", *option)
    assert result.exit_code == 130
    assert "the test fails inspect" in result.stderr
    assert result.stdout.count("billing") == 2


def test_lines_stop_where_the_broker_stops_answering(driver: Shaky) -> None:
    driver.lose_answers(stored=False, times=10_000)
    text = "".join(f"{number}\n" for number in range(1200))
    result = run("publish", "--queue", "billing", "--lines", input=text)
    assert result.exit_code == 1
    assert "stopped: 0 published, 500 failed" in result.stderr
