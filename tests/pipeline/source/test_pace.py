from __future__ import annotations

import asyncio

from queuecraft.pipeline.source.pace import Pace
from queuecraft.testing import FakeClock


async def test_a_pace_is_kept_from_the_first_message_on() -> None:
    clock = FakeClock()
    pace = Pace(100, clock)
    sent: list[float] = []

    async def send() -> None:
        for _ in range(4):
            await pace.wait(pace.size)
            sent.append(round(clock.monotonic(), 3))

    sending = asyncio.create_task(send())
    await clock.advance(10)
    await sending
    assert sent == [0, 0.1, 0.2, 0.3]


async def test_time_that_was_not_used_is_not_made_up_for() -> None:
    clock = FakeClock()
    pace = Pace(10, clock)
    await pace.wait(1)
    await clock.advance(60)
    await pace.wait(1)
    waiting = asyncio.create_task(pace.wait(1))
    await clock.advance(0.05)
    assert not waiting.done()
    await clock.advance(0.05)
    assert waiting.done()


async def test_without_a_rate_nobody_waits() -> None:
    clock = FakeClock()
    for _ in range(100):
        await Pace(None, clock).wait(500)
    assert clock.pending == ()
    assert Pace(None, clock, most=100).size == 100
