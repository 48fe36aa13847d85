"""Every store of claims, each empty, and its time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from queuecraft.drivers.target import Target
from queuecraft.runtime.claims.file import FileClaimStore
from queuecraft.runtime.claims.server import open_claims
from queuecraft.stores.claims.base import ClaimStore
from queuecraft.stores.claims.memory import MemoryClaimStore
from queuecraft.testing import FakeClock
from tests.brokers.redis import Redis

KINDS = ("memory", "file", "redis")

# The server's clock cannot be moved; what ends by it can be made to end sooner.
SOONER = """
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  local left = redis.call('PTTL', key) - tonumber(ARGV[2])
  if left > 0 then redis.call('PEXPIRE', key, left) else redis.call('DEL', key) end
end
"""


@dataclass
class Place:
    """A store, and how time passes in it."""

    store: ClaimStore
    advance: Callable[[float], Awaitable[None]]
    size: Callable[[], Awaitable[int]]


@asynccontextmanager
async def opened(kind: str, folder: Path, redis: Callable[[], Redis]) -> AsyncGenerator[Place]:
    clock = FakeClock(turns=1)
    async with AsyncExitStack() as stack:
        if kind == "memory":
            memory = MemoryClaimStore(clock)

            async def count() -> int:
                return len(memory)

            place = Place(memory, clock.advance, count)
        elif kind == "file":
            file = FileClaimStore(folder / "claims.db", clock.now)

            async def rows() -> int:
                query = "SELECT count(*) FROM claims"
                found: int = await file._file.read("t", lambda each: each.execute(query).get)
                return found

            place = Place(file, clock.advance, rows)
        else:
            server = redis()
            url = stack.enter_context(server.prefix())
            ours = "{" + url.partition("prefix=")[2] + "}:claim:*"

            async def sooner(seconds: float) -> None:
                server.call("EVAL", SOONER, 0, ours, round(seconds * 1000))

            async def keys() -> int:
                return len(server.call("KEYS", ours))

            place = Place(await open_claims(Target(url)), sooner, keys)
        stack.push_async_callback(place.store.close)
        await place.store.open()
        yield place


@pytest.fixture(params=KINDS)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    kind: str = request.param
    async with opened(kind, tmp_path, lambda: request.getfixturevalue("redis")) as place:
        yield place


@pytest.fixture
def store(place: Place) -> ClaimStore:
    return place.store
