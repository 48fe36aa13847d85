"""Wake-ups between processes: by bell and not by chance, and never early."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from queuecraft.drivers.base import Queue
from queuecraft.drivers.local.sqlite.bell import Bell
from queuecraft.testing import FakeClock
from tests.drivers.local.sqlite.conftest import Opener
from tests.drivers.local.sqlite.file import messages
from tests.drivers.local.sqlite.neighbour import neighbour

JOBS = Queue[Any]("jobs")
pytestmark = pytest.mark.usefixtures("no_poll")


async def test_a_message_from_another_process_wakes_ours(open_driver: Opener, path: Path) -> None:
    driver = await open_driver()
    await driver.declare(JOBS)
    subscription = await driver.subscribe(JOBS, prefetch=9)
    program = """
        await driver.open()
        for _ in range(5):
            say("sends", heard())
            await driver.send([Outgoing(b"", "m", queue="jobs")])
    """
    with neighbour(path, program) as sender:
        for number in range(5):
            receiving = asyncio.ensure_future(subscription.receive(1, 3600))
            for _ in range(5):
                await asyncio.sleep(0)
            sender.tell(str(number))
            assert await sender.says() == f"sends {number}"
            assert len(await receiving) == 1


async def test_a_message_of_ours_wakes_another_process(open_driver: Opener, path: Path) -> None:
    driver = await open_driver()
    await driver.declare(JOBS)
    program = """
        from queuecraft.drivers.local.sqlite import driver as module
        module.POLL = 3600.0
        await driver.open()
        subscription = await driver.subscribe(Queue("jobs"), prefetch=1)
        asyncio.get_running_loop().call_later(0.02, say, "waits")
        (delivery,) = await subscription.receive(1, 3600)
        say("got", delivery.sent.id)
        await driver.close()
    """
    with neighbour(path, program) as receiver:
        assert await receiver.says() == "waits"
        await driver.send(messages("jobs", "m-1"))
        assert await receiver.says() == "got m-1"


async def test_a_delayed_message_of_another_process_comes_and_is_not_early(
    open_driver: Opener, path: Path
) -> None:
    driver = await open_driver()
    await driver.declare(JOBS)
    subscription = await driver.subscribe(JOBS, prefetch=1)
    receiving = asyncio.ensure_future(subscription.receive(1, 3600))
    program = """
        import time
        await driver.open()
        await driver.send([Outgoing(b"", "m", queue="jobs", due_at=time.time() + 0.2)])
        await driver.close()
        say("gone")
    """
    with neighbour(path, program) as sender:
        assert await sender.says() == "gone"
        (delivery,) = await receiving

    assert delivery.sent.due_at is not None
    assert delivery.sent.due_at <= time.time()


async def test_a_delay_is_kept_to_the_moment_whoever_sent_it(open_driver: Opener) -> None:
    clock = FakeClock()
    ours, theirs = await open_driver(clock=clock), await open_driver(clock=clock)
    await ours.declare(JOBS)
    subscription = await ours.subscribe(JOBS, prefetch=9)
    await theirs.send(messages("jobs", "late", due_at=clock.now() + 20))
    await clock.settle()
    receiving = asyncio.ensure_future(subscription.receive(9, 3600))
    await theirs.send(messages("jobs", "soon", due_at=clock.now() + 10))

    await clock.advance(9.99)
    assert not receiving.done()
    await clock.advance(0.01)

    assert [each.sent.id for each in await receiving] == ["soon"]
    await clock.advance(9.99)
    assert await subscription.receive(9, 0) == []
    await clock.advance(0.01)
    assert [each.sent.id for each in await subscription.receive(9, 0)] == ["late"]


async def test_a_wake_up_is_not_lost_among_many_for_another_queue(open_driver: Opener) -> None:
    ours, theirs = await open_driver(), await open_driver()
    for name in ("busy", "quiet"):
        await ours.declare(Queue(name))
    await ours.subscribe(Queue("busy"), prefetch=1)
    subscription = await ours.subscribe(Queue("quiet"), prefetch=1)
    receiving = asyncio.ensure_future(subscription.receive(1, 3600))
    for _ in range(5):
        await asyncio.sleep(0)

    for _ in range(600):  # without a turn of the loop: the buffer runs over
        await theirs.send(messages("busy", "m"))
    await theirs.send(messages("quiet", "m-1"))

    assert [each.sent.id for each in await receiving] == ["m-1"]


async def test_nonsense_from_whoever_can_reach_the_socket_is_ignored(
    open_driver: Opener, path: Path
) -> None:
    driver = await open_driver()
    await driver.declare(JOBS)
    subscription = await driver.subscribe(JOBS, prefetch=1)
    receiving = asyncio.ensure_future(subscription.receive(1, 3600))
    (address,) = path.with_name(path.name + "-wake").iterdir()
    stranger = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    folder = os.open(address.parent, os.O_PATH)
    for nonsense in (b"", b"x", b"\xff\xff", b"abc", b"x" * 10_000):
        stranger.sendto(nonsense, f"/proc/self/fd/{folder}/{address.name}")
    os.close(folder)
    stranger.close()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not receiving.done()

    await driver.send(messages("jobs", "m-1"))
    assert len(await receiving) == 1


async def test_nobody_answers_where_nobody_listens(tmp_path: Path) -> None:
    ringing, listening = Bell(tmp_path / "wake"), Bell(tmp_path / "wake")
    ringing.open()
    listening.open()
    heard: list[set[int] | None] = []
    name = listening.listen(heard.append)

    assert ringing.ring(name, 7)
    for _ in range(3):
        await asyncio.sleep(0)
    assert heard == [{7}]
    assert not ringing.ring("never-there")
    listening.close()
    assert not ringing.ring(name)
    ringing.close()
    ringing.close()
    assert ringing.ring(name), "one that cannot ring takes nobody for dead"
    assert list((tmp_path / "wake").iterdir()) == []
