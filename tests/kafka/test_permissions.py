"""With the rights that the page of Kafka lists a user can do all that it says, and no more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from queuecraft import ConnectionLost, Event, QueueCraft, QueueError, Retry
from queuecraft.testing import Ledger
from tests.brokers.distribution import CREDENTIALS
from tests.brokers.kafka import PATIENCE, client
from tests.brokers.kraft import Kraft
from tests.kafka.place import until

PAGE = (Path(__file__).parents[2] / "docs" / "kafka.md").read_text(encoding="utf-8")
USER = CREDENTIALS[0]

admin: Any = import_module("confluent_kafka.admin")  # its types say nothing of rights

number = Event("number", int)

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]  # for a broker of its own


@pytest.fixture(scope="module")
def guarded() -> Iterator[Kraft]:
    """A broker that asks who may do what; who comes without a name may do all."""
    guard = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with Kraft(guard) as server:
        yield server


def url(server: Kraft, prefix: str) -> str:
    """Where the user with the rights goes."""
    return f"kafka://{':'.join(CREDENTIALS)}@127.0.0.1:{server.port('sasl')}?prefix={prefix}"


def rights(prefix: str) -> list[Any]:
    """What the page grants, to our user and prefix."""
    lines = re.findall(r"^\$acls (.*)$", PAGE, re.MULTILINE)
    assert len(lines) == 3
    granted: list[Any] = []
    for line in lines:
        (kind, name), *_ = re.findall(r"--(topic|group) (\S+)", line)
        prefixed = "--resource-pattern-type prefixed" in line
        pattern = (
            admin.ResourcePatternType.PREFIXED if prefixed else admin.ResourcePatternType.LITERAL
        )
        granted += [
            admin.AclBinding(
                admin.ResourceType[kind.upper()],
                name.replace("shop.", prefix),
                pattern,
                f"User:{USER}",
                "*",
                admin.AclOperation[operation.upper()],
                admin.AclPermissionType.ALLOW,
            )
            for operation in re.findall(r"--operation (\w+)", line)
        ]
    return granted


def grant(server: Kraft, prefix: str) -> None:
    asking = AdminClient(client(server.url))  # its answers end with it
    for made in asking.create_acls(rights(prefix)).values():
        made.result(PATIENCE)


async def test_they_are_enough_for_an_application_and_its_dead_letters(guarded: Kraft) -> None:
    grant(guarded, "shop.")
    seen = Ledger()
    async with QueueCraft(url(guarded, "shop.")) as qc:
        billing = qc.worker("billing", retry=Retry(max_retries=1, initial_delay=0.1))
        billing.on(number, seen.failing("billing", times=2))

        @billing.on("sum")
        async def add(numbers: list[int]) -> int:
            return sum(numbers)

        await billing.start()
        await qc.publish(number, 1)
        await seen.wait_for(billing=2, timeout=20)
        await qc.publish(number, 2, delay=0.2)
        await seen.wait_for(billing=4, timeout=20)
        assert await qc.request("sum", [1, 2], int, timeout=20) == 3
        await until(lambda: qc.dead_letters.count("billing"), lambda count: count == 2)
        assert (await qc.dead_letters.redrive("billing")).moved == 2
        await seen.wait_for(billing=6, timeout=20)
        await qc.admin.pause("billing")
        await qc.admin.resume("billing")
        await billing.stop()
        for needs_more in (qc.admin.purge, qc.admin.delete):
            with pytest.raises(QueueError, match="allow this user to use the topic"):
                await needs_more("billing")


async def test_another_prefix_is_out_of_reach(guarded: Kraft) -> None:
    grant(guarded, "shop.")
    with pytest.raises(ConnectionLost, match="allow this user to use the topic"):
        async with QueueCraft(url(guarded, "other."), auto_reconnect=False):
            pass
