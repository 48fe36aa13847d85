"""Waiting for what another thread or process does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def eventually(condition: Callable[[], object]) -> None:
    """Until the condition holds; the test's own time limit is the only one."""
    while not condition():  # noqa: ASYNC110  whatever makes it true, it sets no event
        await asyncio.sleep(0.002)
