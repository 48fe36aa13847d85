"""What the tests of the consuming side share: events, a gate for handlers, queues at rest."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from queuecraft import ConnectionLost, Event, Message, Retry, Worker
from queuecraft.drivers.base import Driver, Move, QueueInfo, Receipt
from queuecraft.testing import FakeClock
from queuecraft.testing.faulty import FaultySubscription
from tests.runtime.support import Stage, eventually, staged

number = Event("number", int)
word = Event("word", str)

AT_ONCE = Retry(max_retries=3, initial_delay=0)

both = pytest.mark.parametrize("inline", [True, False], ids=["inline", "suspending"])
"""Once on a driver that answers at once, once on one whose every call gives up the loop."""


class Gate:
    """A handler that stays inside until the test opens."""

    def __init__(self) -> None:
        self.inside: list[Any] = []
        self.most = 0
        self.passed: list[Any] = []
        self._open = asyncio.Event()

    async def handle(self, payload: Any, message: Message) -> None:
        self.inside.append(payload)
        self.most = max(self.most, len(self.inside))
        try:
            await self._open.wait()
            self.passed.append(payload)
        finally:
            self.inside.remove(payload)

    async def entered(self, count: int) -> None:
        """Wait until so many are inside."""
        await eventually(lambda: len(self.inside) >= count)

    def open(self) -> None:
        """Let all pass, now and from now on."""
        self._open.set()


@asynccontextmanager
async def tidy(*, inline: bool = True, **options: Any) -> AsyncGenerator[Stage]:
    """A stage that leaves no task and no timer behind."""
    async with staged(inline=inline, **options) as stage:
        yield stage
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert stage.clock.pending == ()


@asynccontextmanager
async def choked(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[asyncio.Event]:
    """A broker that takes no messages until the event is set, and all else."""
    flows = asyncio.Event()
    move = FaultySubscription.move

    async def held_up(self: FaultySubscription, moves: Sequence[Move]) -> Sequence[Receipt]:
        await flows.wait()
        return await move(self, moves)

    with monkeypatch.context() as patch:
        patch.setattr(FaultySubscription, "move", held_up)
        try:
            yield flows
        finally:
            flows.set()


@asynccontextmanager
async def flowing(clock: FakeClock, step: float = 0.05) -> AsyncGenerator[None]:
    """Fake time that goes on by itself, a step for each few turns of the loop."""

    async def flow() -> None:
        while True:
            await clock.advance(step)

    flowing = asyncio.create_task(flow())
    try:
        yield
    finally:
        flowing.cancel()
        await asyncio.wait([flowing])


async def state(driver: Driver, queue: str) -> QueueInfo:
    """A look at a queue that counts as no call and fails by no command."""
    inner: Driver = getattr(driver, "inner", driver)
    (info,) = await inner.inspect([queue])
    return info


async def at_rest(driver: Driver, *queues: str, dead: int = 0) -> None:
    """Wait until the queues hold nothing, ready, delayed or in flight, but so many dead letters."""
    infos: list[QueueInfo] = []
    try:
        async with asyncio.timeout(5):
            while True:
                try:
                    infos = [await state(driver, queue) for queue in queues]
                except ConnectionLost:  # dropped, and nobody has noticed yet
                    await asyncio.sleep(0)
                    continue
                if not any(info.ready or info.in_flight or info.delayed for info in infos):
                    break
                await asyncio.sleep(0)
    except TimeoutError:
        raise AssertionError(f"not at rest: {infos}") from None
    assert sum(info.dead or 0 for info in infos) == dead, infos


async def reasons(driver: Driver, queue: str) -> list[Any]:
    """Why each dead letter of a queue is there."""
    inner: Driver = getattr(driver, "inner", driver)
    return [each.sent.headers["x-reason"] for each in await inner.peek(f"{queue}.dlq", 1000)]


def lines(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> str:
    """What was logged from a level on."""
    return "\n".join(each.getMessage() for each in caplog.records if each.levelno >= level)


async def stopped(worker: Worker) -> None:
    """Stop at once."""
    await worker.stop(drain=False)
