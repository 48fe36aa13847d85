"""Every store there is, each empty."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from queuecraft.drivers.local.sqlite import SqliteDriver
from queuecraft.drivers.target import Target
from queuecraft.runtime.delayed.file import OwnFileStore
from queuecraft.runtime.delayed.server import open_store
from queuecraft.stores.base import DelayedStore
from queuecraft.stores.memory import MemoryDelayedStore
from queuecraft.stores.sqlite import SqliteQueueStore
from tests.brokers.redis import Redis

KINDS = ("memory", "file", "queue file", "redis", "queue redis")


@asynccontextmanager
async def opened(
    kind: str, folder: Path, redis: Callable[[], Redis]
) -> AsyncGenerator[DelayedStore]:
    store: DelayedStore
    async with AsyncExitStack() as stack:
        match kind:
            case "memory":
                store = MemoryDelayedStore()
            case "file":
                store = OwnFileStore(folder / "shelf.db")
            case "queue file":
                driver = SqliteDriver(folder / "queue.db")
                await driver.open()
                stack.push_async_callback(driver.close)
                store = SqliteQueueStore(driver.file)
            case _:
                url = stack.enter_context(redis().prefix())
                store = await open_store(Target(url), with_queues=kind == "queue redis")
        stack.push_async_callback(store.close)
        await store.open()
        yield store


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[DelayedStore]:
    kind: str = request.param
    async with opened(kind, tmp_path, lambda: request.getfixturevalue("redis")) as store:
        yield store
