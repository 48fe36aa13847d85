"""RabbitMQ without its management interface: what is named is found, and lists own up."""

from __future__ import annotations

import asyncio
import json

import pytest

from queuecraft import QueueCraft
from tests.cli.shell import Shell

WHY = "RabbitMQ tells which queues it has by its management interface alone"
TODO = "rabbitmq-plugins enable rabbitmq_management"


@pytest.fixture
def bare(shell: Shell, rabbitmq_url: str) -> Shell:
    """A shell on a broker with a queue, of which nobody tells that it is there."""

    async def fill() -> None:
        async with QueueCraft(shell.url) as qc:
            await qc.admin.declare("billing", "order.*")
            await qc.publish("order.placed", {"id": "o-1"})

    shell.url = f"{rabbitmq_url}?management=no"
    asyncio.run(fill())
    return shell


def test_a_queue_that_is_named_is_looked_at_by_its_name(bare: Shell) -> None:
    result = bare("queues", "billing")
    assert (result.exit_code, result.stderr) == (0, "")
    _, billing, letters = result.stdout.splitlines()
    assert billing.split("\t")[:2] == ["billing", "1"]
    assert letters.split("\t")[:2] == ["billing.dlq", "0"]
    assert [each["name"] for each in bare.json("queues", "billing")] == ["billing", "billing.dlq"]


def test_a_queue_that_is_not_there_is_said_to_be_missing_and_nothing_more(bare: Shell) -> None:
    result = bare("queues", "biling")
    assert result.exit_code == 4
    assert "there is no queue 'biling'; which others there are" in result.stderr


@pytest.mark.parametrize("command", [("queues",), ("top", "--once"), ("topology",)])
def test_a_list_that_may_lack_queues_says_so_and_what_to_do(
    bare: Shell, command: tuple[str, ...]
) -> None:
    result = bare(*command)
    assert result.exit_code == 0
    assert result.stderr.startswith(f"note: there may be queues that are not listed: {WHY}")
    assert TODO in result.stderr
    result = bare(*command, "--json")
    assert result.exit_code == 0
    for line in result.stdout.splitlines():
        json.loads(line)
    assert WHY in json.loads(result.stderr)["note"]


def test_health_says_that_it_could_not_judge_what_it_does_not_know(bare: Shell) -> None:
    result = bare("health")
    assert (result.exit_code, result.stdout) == (0, "healthy\n")
    assert result.stderr.startswith(f"note: queues that are not known here were not judged: {WHY}")
    (told,) = bare.json("health")
    assert (told["status"], told["queues"]) == ("healthy", 0)
    assert told["unjudged"].startswith(WHY)


def test_the_doctor_says_what_to_enable(bare: Shell) -> None:
    result = bare("doctor", "--json")
    found = {each["about"]: each for each in map(json.loads, result.stdout.splitlines())}
    assert (result.exit_code, found["queues"]["verdict"]) == (0, "warning")
    assert WHY in found["queues"]["text"]
    assert TODO in found["queues"]["todo"]


def test_an_interface_that_does_not_answer_is_named(bare: Shell) -> None:
    bare.url = bare.url.replace("management=no", "management=http://127.0.0.1:1")
    result = bare("queues")
    assert result.exit_code == 0
    assert "the management interface at http://127.0.0.1:1: " in result.stderr


def test_a_deleted_queue_tells_of_its_dead_letters_by_name(bare: Shell) -> None:
    result = bare("delete", "billing", "--yes")
    assert "'billing.dlq' is still there" in result.stderr
