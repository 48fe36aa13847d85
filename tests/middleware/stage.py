"""An application in memory, with a clock that stands still."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from queuecraft import Event, QueueCraft
from queuecraft.testing import FakeClock

number = Event("number", int)


@asynccontextmanager
async def stage(**options: Any) -> AsyncGenerator[tuple[QueueCraft, FakeClock]]:
    """A QueueCraft that is open while the block runs."""
    clock = FakeClock()
    async with QueueCraft(clock=clock, **options) as qc:
        yield qc, clock
