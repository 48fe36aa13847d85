"""What is done to delayed messages in Redis: scripts, each one step that nobody gets in between."""

from __future__ import annotations

from typing import Final

from queuecraft.stores.base import MOST_BYTES

# `next` holds when a message may be taken: at first when it is due, then when a hold lapses or the
# pause after a refusal is over.
NAMES: Final = ("due", "next", "data", "held", "failures", "notes")

PRELUDE: Final = (
    f"local MOST_BYTES = {MOST_BYTES}"
    + """
local due, next_at, data, held, failures, notes = unpack(KEYS, #KEYS - 5)

local function remove(id)
  redis.call('ZREM', due, id)
  redis.call('ZREM', next_at, id)
  redis.call('HDEL', data, id)
  redis.call('HDEL', held, id)
  redis.call('HDEL', failures, id)
end

local function is_held(id, now)
  if redis.call('HEXISTS', held, id) == 0 then return false end
  local until_then = redis.call('ZSCORE', next_at, id)
  return until_then and tonumber(until_then) > now
end

-- As many of them as are not too large together, with all there is to know.
local function told(ids)
  local found, size = {}, 0
  for _, id in ipairs(ids) do
    size = size + redis.call('HSTRLEN', data, id)
    if #found > 0 and size > MOST_BYTES then break end
    found[#found + 1] = {
      id,
      redis.call('ZSCORE', due, id) or '0',
      redis.call('HGET', data, id) or '',
      redis.call('HGET', failures, id) or '0',
      redis.call('HGET', held, id) or '',
    }
  end
  return found
end

-- Where in the order of delivery those after a place begin. To find out, somebody is put there for
-- a moment: texts cannot be compared here as Redis does, that depends on the server's language.
local function rank_after(when, id)
  if when == '-inf' then return 0 end
  local mark = id .. '\\0'
  while redis.call('ZADD', due, 'NX', when, mark) == 0 do -- there is one of this very name
    if tonumber(redis.call('ZSCORE', due, mark)) == tonumber(when) then
      return redis.call('ZRANK', due, mark)
    end
    mark = mark .. '\\0'
  end
  local rank = redis.call('ZRANK', due, mark)
  redis.call('ZREM', due, mark)
  return rank
end

-- now, limit, due by (or nothing), after when, after whom
local function chosen(now, limit, due_by, when, id)
  limit = tonumber(limit)
  if due_by == '' then
    return redis.call('ZRANGEBYSCORE', next_at, '-inf', now, 'LIMIT', 0, limit)
  end
  local found, at = {}, rank_after(when, id)
  while true do
    local some = redis.call('ZRANGE', due, at, at + 499, 'WITHSCORES')
    for i = 1, #some, 2 do
      if #found >= limit or tonumber(some[i + 1]) > tonumber(due_by) then return found end
      if not is_held(some[i], tonumber(now)) then found[#found + 1] = some[i] end
    end
    if #some < 1000 then return found end
    at = at + 500
  end
end
"""
)

ADD: Final = (
    PRELUDE
    + """
local id, when, limit, record = unpack(ARGV)
local size = redis.call('ZCARD', due)
if redis.call('ZSCORE', due, id) then return {1, size} end
if size >= tonumber(limit) then return {0, size} end
redis.call('ZADD', due, when, id)
redis.call('ZADD', next_at, when, id)
redis.call('HSET', data, id, record)
size = size + 1
if size > tonumber(redis.call('HGET', notes, 'max_size') or '0') then
  redis.call('HSET', notes, 'max_size', size)
end
return {1, size}
"""
)

TAKE: Final = (
    PRELUDE
    + """
local hold, until_then = ARGV[6], ARGV[7]
local found = told(chosen(unpack(ARGV, 1, 5)))
for _, each in ipairs(found) do
  redis.call('HSET', held, each[1], hold)
  redis.call('ZADD', next_at, until_then, each[1])
  each[5] = hold
end
return found
"""
)

RENEW: Final = (
    PRELUDE
    + """
local ours = {}
for i = 2, #ARGV, 2 do
  local is_ours = redis.call('HGET', held, ARGV[i]) == ARGV[i + 1]
  if is_ours then redis.call('ZADD', next_at, ARGV[1], ARGV[i]) end
  ours[#ours + 1] = is_ours and 1 or 0
end
return ours
"""
)

FORGET: Final = (
    PRELUDE
    + """
local count = 0
for i = 1, #ARGV, 2 do
  if redis.call('HGET', held, ARGV[i]) == ARGV[i + 1] then
    remove(ARGV[i])
    count = count + 1
  end
end
return count
"""
)

PUT_BACK: Final = (
    PRELUDE
    + """
for i = 1, #ARGV, 4 do
  local id, hold, count, again = unpack(ARGV, i, i + 3)
  if redis.call('HGET', held, id) == hold then
    redis.call('HDEL', held, id)
    redis.call('HSET', failures, id, count)
    redis.call('ZADD', next_at, again, id)
  end
end
"""
)

CANCEL: Final = (
    PRELUDE
    + """
local id, now = unpack(ARGV)
if not redis.call('ZSCORE', due, id) or is_held(id, tonumber(now)) then return 0 end
remove(id)
return 1
"""
)

TIED: Final = PRELUDE + "return redis.call('ZRANGEBYSCORE', due, ARGV[1], ARGV[1])"

PAGE: Final = (
    PRELUDE
    + """
local before = ARGV[1] == '-inf' and 0 or redis.call('ZCOUNT', due, '-inf', '(' .. ARGV[1])
local at = before + tonumber(ARGV[2])
return told(redis.call('ZRANGE', due, at, at + tonumber(ARGV[3]) - 1))
"""
)

CENSUS: Final = (
    PRELUDE
    + """
return {
  redis.call('ZCARD', due),
  redis.call('HGET', notes, 'max_size') or '0',
  redis.call('ZCOUNT', due, '-inf', ARGV[1]),
  redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2] or '',
  redis.call('ZRANGE', next_at, 0, 0, 'WITHSCORES')[2] or '',
}
"""
)

NOTE: Final = (
    PRELUDE
    + """
for i = 1, #ARGV, 3 do
  local deed, name, value = unpack(ARGV, i, i + 2)
  if deed == 'put' then redis.call('HSET', notes, name, value)
  elseif deed == 'add' then redis.call('HINCRBY', notes, name, value)
  else redis.call('HDEL', notes, name) end
end
"""
)

NOTED: Final = PRELUDE + "return redis.call('HGETALL', notes)"

EXCHANGE: Final = (
    PRELUDE
    + """
local before = redis.call('HGET', notes, ARGV[1])
redis.call('HSET', notes, ARGV[1], ARGV[2])
return before
"""
)

LOOK: Final = (
    PRELUDE
    + """
return told(chosen(unpack(ARGV)))
"""
)

# Nothing is moved that another has moved, cancelled or taken since it was looked at. Taken from
# `next` first: a server that is out of memory lets a script go on once it has made room.
MOVE: Final = (
    PRELUDE
    + """
local answers, fault = {}, ''
for i = 2, #ARGV, 9 do
  local id, when, count, again, to, level, due_ms, headers, value = unpack(ARGV, i, i + 8)
  local known = redis.call('ZSCORE', due, id)
  local answer = '1'
  if not known or tonumber(known) ~= tonumber(when) or is_held(id, tonumber(ARGV[1])) then
    answer = 'g'
    if not known then redis.call('ZREM', next_at, id) end -- or it would be found for ever
  else
    local found = resolve(to, headers)
    if found == nil then
      answer = 'h'
    else
      redis.call('ZREM', next_at, id)
      if found == '' then
        answer = '0'
      else
        local ok, result = pcall(store, to, found, level, tonumber(due_ms), headers, { value })
        if not ok then
          answer = 'e'
          fault = type(result) == 'table' and result.err or tostring(result)
        elseif not result then
          answer = '0'
        end
      end
      if answer == '1' then
        remove(id)
      else
        redis.call('ZADD', next_at, again, id)
        redis.call('HSET', failures, id, count)
        redis.call('HDEL', held, id)
      end
    end
  end
  answers[#answers + 1] = answer
end
return { table.concat(answers), fault }
"""
)
