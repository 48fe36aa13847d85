-- Where messages are put: at the tail of a queue, or aside until they are due.

local UNDELIVERED = 'qc.undelivered.dlq' -- keeps what is due for nobody
local SOME = 500 -- values in one command
local PUT_OFF = 1000 -- milliseconds until an event is tried again that could be kept nowhere

-- Put messages at the tail of a queue. How it is kept comes before its name.
local function put(to, level, values)
  local as, queue = to:sub(1, 1), to:sub(2)
  if as == 's' then
    for _, value in ipairs(values) do
      redis.call('XADD', stream(queue), '*', 'm', value)
    end
    return
  end
  for at = 1, #values, SOME do
    redis.call('RPUSH', list(queue, level), unpack(values, at, math.min(at + SOME - 1, #values)))
  end
end

-- Give an event to all queues of its route; whether anybody has it.
local function spread(found, level, values)
  local taken = false
  for to in found:gmatch('[^%z]+') do
    if to:sub(1, 1) == 'p' then
      for _, value in ipairs(values) do
        if redis.call('PUBLISH', base .. 'live:' .. to:sub(2), value) > 0 then
          taken = true
        end
      end
    else
      put(to, level, values)
      taken = true
    end
  end
  return taken
end

-- Members are told apart, and kept in order, by a number.
local function later(key, due, start, values)
  local number = redis.call('INCRBY', base .. 'sequence', #values) - #values
  for at, value in ipairs(values) do
    redis.call('ZADD', key, due, string.format('%016.0f', number + at) .. start .. value)
  end
end

-- Where something goes: a queue ('q' and its name) or an exchange ('x' and a route). Nil if that
-- depends on headers that were not given, '' if it goes nowhere.
local function resolve(to, headers)
  if to:sub(1, 1) == 'x' then
    return route(to:sub(2), headers)
  end
  local as = registered(to:sub(2))
  return as and as:sub(1, 1) .. to:sub(2) or ''
end

-- Store messages that have somewhere to go; whether anybody has them.
local function store(to, found, level, due, headers, values)
  local queue = to:sub(1, 1) == 'q' and to:sub(2)
  if due > 0 and due > now() then
    if queue then
      later(base .. 'delayed:' .. queue, due, level, values)
    else
      local where = to:sub(2)
      local sizes = string.format('%08x%08x', #where, #headers)
      later(base .. 'events', due, level .. sizes .. where .. headers, values)
      -- Whoever waits for the next event that is due has to know of one before it, and of no other.
      local head = redis.call('ZRANGE', base .. 'events', 0, 0, 'WITHSCORES')
      if tonumber(head[2]) == due then
        redis.call('SET', base .. 'soonest', head[2])
      end
    end
    return true
  elseif queue then
    put(found, level, values)
    return true
  end
  return spread(found, level, values)
end

-- Do something with each member that is due, whatever becomes of the others; one that fails may be
-- put off. What is done with is taken out last: if a crash cuts this in two, it comes twice and not
-- never.
local function each_due(key, at, deed, put_off)
  local found = redis.call('ZRANGEBYSCORE', key, '-inf', at, 'LIMIT', 0, SOME)
  if #found == 0 then
    return
  end
  begin()
  local gone, fault = {}, nil
  for _, member in ipairs(found) do
    local ok, result = pcall(deed, member)
    if ok then
      gone[#gone + 1] = member
    else
      fault = fault or result
      if put_off then
        redis.call('ZADD', key, at + put_off, member)
      end
    end
  end
  if #gone > 0 then
    redis.call('ZREM', key, unpack(gone))
  end
  if fault then
    error(fault, 0)
  end
end

-- Make everything ready in a queue that is due.
local function bring_due(to, at)
  each_due(base .. 'delayed:' .. to:sub(2), at, function(member)
    put(to, member:sub(17, 17), { member:sub(18) })
  end)
end

local function keep_undelivered(level, values)
  redis.call('HSETNX', base .. 'queues', UNDELIVERED, 'l--' .. '\128')
  put(registered(UNDELIVERED):sub(1, 1) .. UNDELIVERED, level, values)
end

-- Give an event that is due to one queue. If that cannot take it, it waits there: the consumers of
-- that queue meet the error, and nobody else does.
local function hand(to, level, at, values)
  local waiting = base .. 'delayed:' .. to:sub(2)
  if not pcall(spread, to, level, values) and not pcall(later, waiting, at, level, values) then
    keep_undelivered(level, values)
  end
end

-- Let every delayed event go its way that is due. One that can be kept nowhere is put off.
local function bring_events(at)
  each_due(base .. 'events', at, function(member)
    local place, more = tonumber(member:sub(18, 25), 16), tonumber(member:sub(26, 33), 16)
    local where = member:sub(34, 33 + place)
    local headers = member:sub(34 + place, 33 + place + more)
    local level, values = member:sub(17, 17), { member:sub(34 + place + more) }
    local targets = route(where, headers)
    if not targets or targets == '' then
      keep_undelivered(level, values)
      return
    end
    for to in targets:gmatch('[^%z]+') do
      hand(to, level, at, values)
    end
  end, PUT_OFF)
end

-- Milliseconds until something more is due; -1 for never.
local function next_due(queue, at)
  local soonest = -1
  if redis.call('EXISTS', base .. 'delayed:' .. queue, base .. 'events') == 0 then
    return soonest
  end
  for _, key in ipairs({ base .. 'delayed:' .. queue, base .. 'events' }) do
    local head = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    if head[2] then
      local wait = math.max(0, math.ceil(tonumber(head[2]) - at))
      if soonest < 0 or wait < soonest then
        soonest = wait
      end
    end
  end
  return soonest
end

local function bring(to, at)
  local wait = next_due(to:sub(2), at)
  if wait == 0 then
    bring_due(to, at)
    bring_events(at)
    wait = next_due(to:sub(2), at)
  end
  return wait
end
