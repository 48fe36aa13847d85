"""Workers that run while a block does, and waiting for what they do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from queuecraft import Worker


@asynccontextmanager
async def running(*workers: Worker) -> AsyncGenerator[None]:
    """These workers run while the block does."""
    for worker in workers:
        await worker.start()
    try:
        yield
    finally:
        for worker in workers:
            await worker.stop(timeout=5)


async def until(condition: Callable[[], object]) -> None:
    """Return once the condition holds."""
    async with asyncio.timeout(25):
        while not condition():  # noqa: ASYNC110  whatever makes it true, it sets no event
            await asyncio.sleep(0.01)
