-- What every script begins with: names of keys, the time, and what a message is wrapped in.
-- KEYS[1] is what all keys begin with. A queue is registered under its name as three letters and
-- its properties: how it is kept (l: lists, s: a stream, p: lists, and pub/sub for events), 'a' if
-- it goes with its last consumer ('r': a while after it), 'e' if it may have but one.

local base = KEYS[1]
local GROUP = 'qc'
local HERE = '_' -- the consumer of a stream's group that keeps what was given back
local AGAIN = '\0qc\2' -- begins a message that was delivered before

local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function list(queue, level)
  if level == '0' then
    return base .. 'queue:' .. queue
  end
  return base .. 'queue.' .. level .. ':' .. queue
end

local function stream(queue)
  return base .. 'stream:' .. queue
end

local function urgent(queue)
  local keys = {}
  for level = 9, 1, -1 do
    keys[#keys + 1] = list(queue, tostring(level))
  end
  return keys
end

local function registered(queue)
  return redis.call('HGET', base .. 'queues', queue)
end

-- Once more delivered in vain. A message of somebody else's has no id: it keeps the one it had.
local function marked(value, id)
  local count, own = 0, ''
  local known = value:sub(1, 4) == AGAIN and value:sub(5, 14):match('^%x%x%x%x%x%x%x%x%x%x$')
  if known then
    local size = tonumber(known:sub(9), 16)
    count, own = tonumber(known:sub(1, 8), 16), value:sub(15, 14 + size)
    value = value:sub(15 + size)
  elseif value:sub(1, 4) ~= '\0qc\1' then
    own = id
  end
  return AGAIN .. string.format('%08x%02x', count + 1, #own) .. own .. value
end

-- A server that is out of memory lets a script go on once it has written something.
local function begin()
  redis.call('UNLINK', base .. 'nothing')
end

local function each(key, deed)
  for _, id in ipairs(redis.call('HKEYS', key)) do
    deed(id)
  end
end
