"""`queuecraft health`: healthy or not, and why."""

from __future__ import annotations

import json

import pytest

from queuecraft.cli.health import Limits
from queuecraft.drivers.base import QueueInfo
from tests.brokers.rabbitmq import RabbitMQ
from tests.cli.shell import Shell
from tests.runtime.support import dead_letter


def test_a_broker_whose_queues_are_well_is_healthy(shell: Shell) -> None:
    shell.declare("billing")
    assert shell.ok("health") == "healthy\n"
    assert shell.json("health") == [
        {
            "status": "healthy",
            "connected": True,
            "error": None,
            "queues": 2,
            "trouble": [],
            "unjudged": None,
        }
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


def test_messages_in_a_paused_queue_are_trouble(shell: Shell) -> None:
    shell.declare("billing", "order.*")
    shell.ok("pause", "billing")
    assert shell("health").exit_code == 0
    shell.ok("publish", "order.placed", "1")
    result = shell("health")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == "billing\t1 ready, and it is paused"


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


@pytest.mark.parametrize("name", ["queuecraft.pauses", "qc.reply.a1", "queuecraft.bench.0a1b"])
def test_queues_of_our_own_are_no_trouble(name: str) -> None:
    assert Limits().problems(QueueInfo(name=name, ready=2, dead=1, consumers=0)) == []


def _paused_and_resumed(shell: Shell) -> None:
    shell.ok("declare", "billing", "order.*")
    shell.ok("pause", "billing", "--reason", "the bank is down")
    shell.ok("resume", "billing")


def _nothing_is_seen_of_pauses(shell: Shell) -> None:
    assert shell.ok("health") == "healthy\n"
    (told,) = shell.json("health")
    assert told["trouble"] == []
    names = [each["name"] for each in shell.json("queues")]
    assert "billing" in names
    assert "queuecraft.pauses" not in names
    (seen,) = shell.json("top", "--once")
    assert "queuecraft.pauses" not in [each["name"] for each in seen["queues"]]
    (known,) = shell.json("topology")
    assert "queuecraft.pauses" not in known["queues"]
    assert "queuecraft.pauses" not in shell("peek", "nowhere").stderr


def test_a_queue_that_was_paused_and_resumed_is_healthy(shell: Shell) -> None:
    _paused_and_resumed(shell)
    _nothing_is_seen_of_pauses(shell)
    (notes,) = shell.json("queues", "queuecraft.pauses")  # for who insists
    assert notes["ready"] == 2


@pytest.mark.parametrize("mode", ["list", "stream"])
def test_so_it_is_on_redis(shell: Shell, redis_url: str, mode: str) -> None:
    shell.url = f"{redis_url}&mode={mode}"
    _paused_and_resumed(shell)
    _nothing_is_seen_of_pauses(shell)


def test_so_it_is_on_rabbitmq(shell: Shell, rabbitmq: RabbitMQ, rabbitmq_url: str) -> None:
    shell.url = f"{rabbitmq_url}?management={_without_user(rabbitmq.management_url)}"
    _paused_and_resumed(shell)
    _nothing_is_seen_of_pauses(shell)


def test_so_it_is_on_kafka(shell: Shell, kafka_url: str) -> None:
    shell.url = kafka_url
    _paused_and_resumed(shell)
    _nothing_is_seen_of_pauses(shell)


def _without_user(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
