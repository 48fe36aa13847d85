"""The life of a worker process, lived in this one."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager

import pytest

from queuecraft import ConfigError, ConnectionLost, QueueCraft, TopologyMismatch
from queuecraft.cli.processes.application import Application
from queuecraft.cli.processes.life import Life
from queuecraft.cli.processes.line import Hello, State, SupervisorEnd
from queuecraft.cli.processes.stop import Stop
from queuecraft.drivers.base import Queue
from queuecraft.drivers.local.memory import MemoryDriver
from queuecraft.testing import FaultyDriver
from tests.runtime.support import eventually

log = logging.getLogger("queuecraft.run")


@pytest.fixture(autouse=True)
def alarm() -> Generator[None]:
    """The last deadline of a process is not to end this one."""
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


class Gate:
    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.opened = asyncio.Event()

    async def handle(self, payload: object) -> None:
        self.entered.set()
        await self.opened.wait()


def life(qc: QueueCraft, stop: Stop) -> Life:
    return Life(Application(qc, qc.workers), stop, log)


@asynccontextmanager
async def living(
    gate: Gate, shutdown_timeout: float = 30.0
) -> AsyncGenerator[tuple[Stop, Life, asyncio.Task[int]]]:
    qc = QueueCraft(shutdown_timeout=shutdown_timeout)
    qc.worker("billing").on("order.*", gate.handle)
    stop = Stop(log)
    its = life(qc, stop)
    task = asyncio.create_task(its.live())
    await eventually(lambda: its.healthy)
    await qc.publish("order.placed", 1)
    await gate.entered.wait()
    yield stop, its, task


async def test_asked_to_stop_it_finishes_what_runs() -> None:
    gate = Gate()
    async with living(gate) as (stop, its, task):
        stop.ask("the test")
        stop.ask("the test again")
        await asyncio.sleep(0)
        assert not its.healthy
        assert not task.done()
        gate.opened.set()
        assert await task == 0


async def test_it_says_what_is_still_at_work_and_what_goes_back_when_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("queuecraft.cli.processes.life.SOON", 0.01)
    gate = Gate()
    async with living(gate, shutdown_timeout=1.5) as (stop, _, task):
        stop.ask("the test")
        await eventually(lambda: "still at work" in caplog.text)
        assert "1 handler still at work, at most 1 s; Ctrl-C again stops at once" in caplog.text
        assert await task == 1
    assert "1.5 s were not enough: 1 message goes back" in caplog.text


async def test_forced_to_stop_it_does_not() -> None:
    gate = Gate()
    async with living(gate) as (stop, _, task):
        stop.ask("the test")
        await asyncio.sleep(0)
        stop.force("the test")
        assert await task == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConnectionLost("gone for good"), 3),
        (ConfigError("that cannot be"), 2),
        (TopologyMismatch("it is another"), 1),
        (ZeroDivisionError("a mistake of ours"), 1),
    ],
    ids=lambda each: type(each).__name__,
)
async def test_how_it_fails_is_told_by_its_exit_code(error: Exception, code: int) -> None:
    class Refusing(MemoryDriver):
        async def declare(self, queue: Queue) -> None:
            raise error

    qc = QueueCraft(drivers=[Refusing()], auto_reconnect=False)
    qc.worker("billing").on("order.*", print)
    assert await life(qc, Stop(log)).live() == code


async def test_a_connection_that_is_lost_and_given_up_ends_it_with_3(
    caplog: pytest.LogCaptureFixture,
) -> None:
    driver = FaultyDriver()
    qc = QueueCraft(drivers=[driver], auto_reconnect=False)
    qc.worker("billing").on("order.*", print)
    its = life(qc, Stop(log))
    task = asyncio.create_task(its.live())
    await eventually(lambda: its.healthy)
    await driver.drop()
    assert await asyncio.wait_for(task, 5) == 3
    assert "not connected" in caplog.text


async def test_it_obeys_its_supervisor_and_tells_how_it_is() -> None:
    ours, theirs = socket.socketpair()
    line = await SupervisorEnd.open(ours)
    qc = QueueCraft()
    qc.worker("billing").on("order.*", print)
    qc.worker("billing").on("user.*", print)
    task = asyncio.create_task(life(qc, Stop(log)).live_supervised(theirs.detach()))
    reports = line.reports()
    assert await anext(reports) == Hello("local://", {"billing": ("order.*", "user.*")}, 30.0)
    while await anext(reports) != State(started=True, healthy=True):
        pass
    line.tell("stop")
    assert await task == 0
    line.close()


@pytest.mark.parametrize("word", ["force", None])
async def test_it_goes_when_its_supervisor_insists_or_is_gone(word: str | None) -> None:
    ours, theirs = socket.socketpair()
    line = await SupervisorEnd.open(ours)
    qc = QueueCraft()
    qc.worker("billing").on("order.*", print)
    task = asyncio.create_task(life(qc, Stop(log)).live_supervised(theirs.detach()))
    await anext(line.reports())
    if word is not None:
        line.tell("force")
    else:
        line.close()
    assert await task == (0 if word is None else 1)
    line.close()
