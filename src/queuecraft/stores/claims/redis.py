"""Claims in Redis: for all who reach the server, and by its clock. What is over goes by itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from queuecraft.stores.claims.base import CLAIMED, Answer, Busy, ClaimStore, Done
from queuecraft.stores.redis import Argument, Server

# Each key is a text that ends by itself: `o` and the owner while it is held, `d` and the value once
# it is done.
CLAIM: Final = """
local owner, lease = 'o' .. ARGV[1], ARGV[2]
local answers = {}
for i, key in ipairs(KEYS) do
  local found = redis.call('GET', key)
  if not found or found == owner then
    redis.call('SET', key, owner, 'PX', lease)
    answers[i] = ''
  elseif string.sub(found, 1, 1) == 'd' then
    answers[i] = found
  else
    answers[i] = redis.call('PTTL', key)
  end
end
return answers
"""

COMPLETE: Final = """
local owner, ttl = 'o' .. ARGV[1], ARGV[2]
local refused = {}
for i, key in ipairs(KEYS) do
  local found = redis.call('GET', key)
  if not found or found == owner then
    redis.call('SET', key, 'd' .. ARGV[2 + i], 'PX', ttl)
  elseif string.sub(found, 1, 1) ~= 'd' then
    refused[#refused + 1] = i
  end
end
return refused
"""

RELEASE: Final = """
local owner = 'o' .. ARGV[1]
for _, key in ipairs(KEYS) do
  if redis.call('GET', key) == owner then redis.call('DEL', key) end
end
"""

RENEW: Final = """
local owner, lease = 'o' .. ARGV[1], ARGV[2]
local lost = {}
for i, key in ipairs(KEYS) do
  if redis.call('GET', key) == owner then
    redis.call('PEXPIRE', key, lease)
  else
    lost[#lost + 1] = i
  end
end
return lost
"""

FOR_EVER: Final = 10**15  # milliseconds; what goes far beyond is refused


class RedisClaimStore(ClaimStore):
    """Claims under one prefix, which is also the hash tag of every key."""

    def __init__(self, server: Server, prefix: str) -> None:
        self._server = server
        self._prefix = f"{{{prefix}}}:claim:"

    @property
    def is_lost(self) -> bool:
        return self._server.is_lost

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        await self._server.close()

    async def claim(self, keys: Sequence[str], owner: str, lease: float) -> Sequence[Answer]:
        return [_answer(each) for each in await self._run(CLAIM, keys, owner, _ms(lease))]

    async def complete(
        self, values: Mapping[str, bytes], owner: str, ttl: float
    ) -> Collection[str]:
        keys = list(values)
        refused: list[int] = await self._run(COMPLETE, keys, owner, _ms(ttl), *values.values())
        return [keys[at - 1] for at in refused]

    async def release(self, keys: Sequence[str], owner: str) -> None:
        await self._run(RELEASE, keys, owner)

    async def renew(self, keys: Sequence[str], owner: str, lease: float) -> Collection[str]:
        lost: list[int] = await self._run(RENEW, keys, owner, _ms(lease))
        return [keys[at - 1] for at in lost]

    async def _run(self, script: str, keys: Sequence[str], *arguments: Argument) -> Any:
        return await self._server.run(script, [self._prefix + key for key in keys], arguments)


def _ms(seconds: float) -> int:
    return max(1, min(round(seconds * 1000), FOR_EVER))


def _answer(told: bytes | int) -> Answer:
    if isinstance(told, int):
        return Busy(max(0, told) / 1000)
    return Done(told[1:]) if told else CLAIMED
