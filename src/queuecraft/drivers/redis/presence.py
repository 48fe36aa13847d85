"""Notes in Redis: a hash of them, and a sorted set that says until when each is up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from queuecraft.drivers.redis.client import Client, RedisError, Script
from queuecraft.drivers.redis.refusals import refusal

# Both keys are of one hash tag, and go by themselves when nobody puts anything up any more.
_BEGIN: Final = """
local notes, expires = KEYS[1] .. 'notes', KEYS[1] .. 'notes.expires'
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
"""

# ARGV: name, note, milliseconds.
ANNOUNCE: Final = Script(
    _BEGIN
    + """
if ARGV[2] == '' then
  redis.call('HDEL', notes, ARGV[1])
  redis.call('ZREM', expires, ARGV[1])
  return 0
end
local old = redis.call('ZRANGEBYSCORE', expires, '-inf', now, 'LIMIT', 0, 100)
for _, name in ipairs(old) do
  redis.call('HDEL', notes, name)
  redis.call('ZREM', expires, name)
end
redis.call('HSET', notes, ARGV[1], ARGV[2])
redis.call('ZADD', expires, now + tonumber(ARGV[3]), ARGV[1])
local last = redis.call('ZREVRANGE', expires, 0, 0, 'WITHSCORES')[2]
for _, key in ipairs({notes, expires}) do
  redis.call('PEXPIREAT', key, last)
end
return 1
"""
)

ANNOUNCED: Final = Script(
    _BEGIN
    + """
local names = redis.call('ZRANGEBYSCORE', expires, '(' .. now, '+inf')
local found = {}
for start = 1, #names, 1000 do
  local some = {unpack(names, start, math.min(start + 999, #names))}
  for at, note in ipairs(redis.call('HMGET', notes, unpack(some))) do
    if note then
      found[#found + 1] = some[at]
      found[#found + 1] = note
    end
  end
end
return found
"""
)


async def announce(client: Client, base: str, name: str, note: bytes, ttl: float) -> None:
    """Put a note up in place of an older one; an empty one takes it down."""
    await _eval(client, ANNOUNCE, base, name, note, max(1, round(1000 * ttl)))


async def announced(client: Client, base: str) -> Mapping[str, bytes]:
    """Those whose time is not over, by the clock of the server."""
    found: list[bytes] = await _eval(client, ANNOUNCED, base)
    pairs = zip(found[::2], found[1::2], strict=True)
    return {name.decode("utf-8", "replace"): note for name, note in pairs}


async def _eval(client: Client, script: Script, base: str, *arguments: str | bytes | int) -> Any:
    operation = "announce" if script is ANNOUNCE else "announced"
    try:
        return await client.eval(script, [base], arguments)
    except RedisError as error:
        raise refusal(error, operation) from None
