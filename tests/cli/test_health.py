"""`queuecraft health`: healthy or not, and why."""

from __future__ import annotations

import json

import pytest

from queuecraft.cli.health import Limits
from queuecraft.drivers.base import QueueInfo
from tests.cli.shell import Shell
from tests.runtime.support import dead_letter


def test_a_broker_whose_queues_are_well_is_healthy(shell: Shell) -> None:
    shell.declare("billing")
    assert shell.ok("health") == "healthy\n"
    assert shell.json("health") == [
        {"status": "healthy", "connected": True, "error": None, "queues": 2, "trouble": []}
    ]


def test_messages_nobody_consumes_and_dead_letters_are_trouble(shell: Shell) -> None:
    shell.declare("billing", "order.*")
    shell.ok("publish", "order.placed", "1")
    shell.put(dead_letter("m-1"))
    result = shell("health")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "unhealthy",
        "queue\tproblem",
        "billing\t1 dead letter; 1 ready and nobody consumes",
    ]
    told = json.loads(shell("health", "--json").stdout)
    assert told["status"] == "unhealthy"
    assert [each["queue"] for each in told["trouble"]] == ["billing"]


def test_limits_are_in_the_hands_of_the_operator(shell: Shell) -> None:
    shell.declare("billing", "order.*")
    shell.put(dead_letter("m-1"))
    assert shell("health").exit_code == 1
    assert shell("health", "--max-dead", "1").exit_code == 0
    assert shell("health", "--connection-only").exit_code == 0


@pytest.mark.parametrize(
    ("info", "problems"),
    [
        (QueueInfo(name="q"), []),
        (QueueInfo(name="q", ready=5, consumers=1, oldest_age=10.0), []),
        (QueueInfo(name="q", ready=5, consumers=None, oldest_age=None), []),
        (
            QueueInfo(name="q", ready=5, consumers=1, oldest_age=400.0),
            ["the oldest waits for 6m 40s"],
        ),
        (QueueInfo(name="q", ready=5, consumers=0), ["5 ready and nobody consumes"]),
        (QueueInfo(name="q", ready=0, consumers=0), []),
        (QueueInfo(name="q", dead=2000, consumers=1), ["2,000 dead letters"]),
        (QueueInfo(name="q.dlq", ready=5, consumers=0), []),
    ],
)
def test_what_the_broker_does_not_tell_is_no_trouble(info: QueueInfo, problems: list[str]) -> None:
    assert Limits().problems(info) == problems
