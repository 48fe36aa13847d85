"""The page about Redis: its program runs, its commands and its permissions do what it says."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path

import pytest

from queuecraft.drivers.base import Queue
from tests.brokers.redis import RedisServer
from tests.docs.blocks import changed, left_to
from tests.redis.place import Place, bound, event, received, sent
from tests.test_house import ROOT, run

PAGE = (ROOT / "docs" / "redis.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^redis-cli (.+?)(?:\s+#.*)?$", PAGE, re.MULTILINE)


def test_the_first_program_runs(redis_url: str, tmp_path: Path) -> None:
    (program,) = left_to(__file__, "docs/redis.md")
    here = {"redis://localhost:6379/0?mode=list": f"{redis_url}&mode=list"}
    status, output = run(changed(program, here, stop_after="charged o-2"), tmp_path)
    assert (status, output) == (0, "charged o-1\ncharged o-2\n")


@pytest.mark.parametrize(
    ("mode", "verbs", "expected"),
    [
        ("list", ("RPUSH",), [b'{"id": "o-2"}', b'{"id": "o-1"}']),
        ("stream", ("XADD",), [b'{"id": "o-3"}']),
        ("pubsub", ("PUBLISH",), [b'{"id": "o-4"}']),
    ],
)
async def test_the_commands_put_messages_into_the_queue(
    place: Place, mode: str, verbs: tuple[str, ...], expected: list[bytes]
) -> None:
    driver = await place.driver(mode)
    await driver.declare(Queue("billing"))
    consumer = await driver.subscribe(Queue("billing"), prefetch=5)
    commands = [shlex.split(each) for each in COMMANDS]
    ours = [each for each in commands if each[0] in verbs]
    for verb, key, *rest in ours:
        await place.call(verb, key.replace("{qc}:", place.base), *rest)
    got = await received(consumer, len(ours))
    assert [each.sent.body for each in got] == expected


@pytest.mark.parametrize("mode", ["list", "stream", "pubsub"])
async def test_the_permissions_are_enough(mode: str) -> None:
    (grant,) = [shlex.split(each) for each in COMMANDS if each.startswith("ACL")]
    with RedisServer() as server:
        assert server.call(*grant) == b"OK"
        place = Place(f"redis://shop:password@127.0.0.1:{server.port()}/0?prefix=qc")
        driver = await place.driver(mode)
        await driver.declare(bound("billing", "order.placed"))
        consumer = await driver.subscribe(Queue("billing"), prefetch=5)
        assert not driver.watch.deaf
        waiting = asyncio.create_task(received(consumer))
        await sent(driver, event("order.placed"))
        assert list(await consumer.ack(await waiting)) == []
        await driver.topology()
        await driver.purge("billing")
        await driver.delete("billing")
        await place.close()
        assert server.call("ACL", "LOG") == []
