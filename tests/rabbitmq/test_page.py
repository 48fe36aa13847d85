"""The page about RabbitMQ: its program runs, and what it promises of permissions is enough."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from urllib.parse import urlsplit

import pytest

from queuecraft import QueueCraft
from queuecraft.testing import Ledger
from tests.brokers.management import quoted, vhost_of
from tests.brokers.rabbitmq import RabbitMQ
from tests.docs.blocks import changed, left_to
from tests.rabbitmq.place import AT_ONCE, Order, order_placed, running, until_ready
from tests.test_house import ROOT, run

PAGE = (ROOT / "docs" / "rabbitmq.md").read_text(encoding="utf-8")


def test_the_first_program_runs(rabbitmq_url: str, tmp_path: Path) -> None:
    (program,) = left_to(__file__, "docs/rabbitmq.md")
    here = {"amqp://guest:guest@localhost:5672/": rabbitmq_url}
    status, output = run(changed(program, here, stop_after="charged o-2"), tmp_path)
    assert (status, output) == (0, "charged o-1\ncharged o-2\n")


def rights(row: str) -> list[list[str]]:
    """The patterns in a row of the page's table of permissions."""
    (line,) = (each for each in PAGE.splitlines() if each.startswith(f"| {row}"))
    cells = re.split(r"(?<!\\)\|", line)[2:5]
    return [re.findall(r"`([^`]+)`", cell.replace("\\|", "|")) for cell in cells]


@pytest.fixture
def people(rabbitmq: RabbitMQ, rabbitmq_url: str) -> Iterator[dict[str, str]]:
    """URLs of a publisher and a worker with no more rights than the page says."""
    publisher, worker = rights("publishes"), rights("works on")
    (every,) = worker[0]
    granted = {
        "publisher": [each[0] for each in publisher],
        "worker": [every, "|".join([every, *worker[1]]), every],
    }
    vhost = quoted(vhost_of(rabbitmq_url))
    parts = urlsplit(rabbitmq_url)
    urls: dict[str, str] = {}
    names = {who: f"{who}-{token_hex(4)}" for who in granted}
    for who, name in names.items():
        configure, write, read = granted[who]
        rabbitmq.management.call("PUT", f"users/{name}", {"password": "secret", "tags": ""})
        told = {"configure": configure, "write": write, "read": read}
        rabbitmq.management.call("PUT", f"permissions/{vhost}/{name}", told)
        urls[who] = f"amqp://{name}:secret@{parts.hostname}:{parts.port}{parts.path}"
    yield urls
    for name in names.values():
        rabbitmq.management.call("DELETE", f"users/{name}")


async def test_the_permissions_it_names_are_enough(people: dict[str, str]) -> None:
    seen = Ledger()
    at_work = QueueCraft(people["worker"], retry=AT_ONCE)
    billing = at_work.worker("billing").on(order_placed, seen.failing("billing", times=3))
    async with at_work, running(billing), QueueCraft(people["publisher"]) as qc:
        await qc.publish(order_placed, Order("o-1"))
        await qc.publish(order_placed, Order("o-2"), delay=0.2)
        await seen.wait_for(billing=6)
        await until_ready(at_work, "billing.dlq", 2)
        assert (await at_work.dead_letters.redrive("billing")).moved == 2
        await seen.wait_for(billing=8)
