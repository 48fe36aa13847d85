-- Who consumes, and what becomes of what they hold: it goes back to its place, counted as
-- delivered once more.

local function held_in_order(consumer)
  local flat = redis.call('HGETALL', base .. 'held:' .. consumer)
  local held = {}
  for at = 1, #flat, 2 do
    held[#held + 1] = { tonumber(flat[at]), flat[at + 1] }
  end
  table.sort(held, function(one, other)
    return one[1] > other[1]
  end)
  return held
end

-- An id of a stream as text that sorts like the stream.
local function place(id)
  local time, number = id:match('^(%d+)-(%d+)$')
  return string.rep('0', 20 - #time) .. time .. '-' .. string.rep('0', 20 - #number) .. number
end

local function id_at(position)
  local time, number = position:match('^0*(%d+)-0*(%d+)$')
  return time .. '-' .. number
end

-- Keep entries of a stream for whoever comes next, before all that nobody has seen.
local function keep(queue, ids)
  for _, id in ipairs(ids) do
    redis.call('XCLAIM', stream(queue), GROUP, HERE, 0, id, 'FORCE', 'JUSTID')
    redis.call('ZADD', base .. 'back:' .. queue, 0, place(id))
  end
end

local function give_back_entries(queue, consumer)
  while true do
    local found = redis.pcall('XPENDING', stream(queue), GROUP, '-', '+', 100, consumer)
    if found.err or #found == 0 then
      break
    end
    for _, entry in ipairs(found) do
      redis.call('HINCRBY', base .. 'again:' .. queue, entry[1], 1)
      keep(queue, { entry[1] })
    end
  end
  redis.pcall('XGROUP', 'DELCONSUMER', stream(queue), GROUP, consumer)
end

local function give_back(queue, consumer)
  local key = base .. 'held:' .. consumer
  local as = registered(queue)
  if as and as:sub(1, 1) == 's' then
    give_back_entries(queue, consumer)
  elseif as then
    for _, each_held in ipairs(held_in_order(consumer)) do
      local id = string.format('%.0f', each_held[1])
      redis.call('LPUSH', list(queue, id:sub(-1)), marked(each_held[2], consumer .. '-' .. id))
      redis.call('HDEL', key, id) -- one by one: if the next fails, this is tried again
    end
  end
  redis.call('UNLINK', key)
end

local function remove(queue)
  local keys = urgent(queue)
  keys[#keys + 1] = list(queue, '0')
  keys[#keys + 1] = stream(queue)
  for _, name in ipairs({ 'delayed:', 'back:', 'again:', 'done:', 'active:' }) do
    keys[#keys + 1] = base .. name .. queue
  end
  each(base .. 'consumers:' .. queue, function(consumer)
    keys[#keys + 1] = base .. 'held:' .. consumer
  end)
  keys[#keys + 1] = base .. 'consumers:' .. queue
  for at = 1, #keys, 500 do
    redis.call('UNLINK', unpack(keys, at, math.min(at + 499, #keys)))
  end
  each(base .. 'exchanges', function(exchange)
    local bound = base .. 'bound:' .. exchange
    for _, packed in ipairs(redis.call('SMEMBERS', bound)) do
      if cmsgpack.unpack(packed)[1] == queue then
        redis.call('SREM', bound, packed)
      end
    end
  end)
  redis.call('HDEL', base .. 'queues', queue)
  redis.call('HDEL', base .. 'dead', queue)
  redis.call('ZREM', base .. 'unheard', queue)
  redis.call('DEL', base .. 'routes')
end

local UNHEARD = 60000 -- milliseconds that replies wait for who has lost its connection

-- A consumer is gone. Whatever goes wrong, what it held is not forgotten before it is put back.
local function leave(queue, consumer)
  begin()
  local key = base .. 'consumers:' .. queue
  if redis.call('HEXISTS', key, consumer) == 0 then
    redis.call('UNLINK', base .. 'held:' .. consumer)
    return
  end
  give_back(queue, consumer)
  redis.call('HDEL', key, consumer)
  if redis.call('GET', base .. 'active:' .. queue) == consumer then
    redis.call('DEL', base .. 'active:' .. queue)
  end
  local as = registered(queue)
  local ends = as and redis.call('HLEN', key) == 0 and as:sub(2, 2)
  if ends == 'a' then
    remove(queue)
  elseif ends == 'r' then
    redis.call('ZADD', base .. 'unheard', now() + UNHEARD, queue)
  end
end

-- A whole session is gone. A consumer whose queue is broken does not keep the others.
local function bury(session)
  begin()
  redis.call('SREM', base .. 'suspects', session)
  local key = base .. 'session:' .. session
  local consumers = redis.call('HGETALL', key)
  for at = 1, #consumers, 2 do
    if pcall(leave, consumers[at + 1], consumers[at]) then
      redis.call('HDEL', key, consumers[at])
    end
  end
  if redis.call('EXISTS', key) == 0 then
    redis.call('ZREM', base .. 'sessions', session)
  end
end

local GRACE = 1000 -- milliseconds for a sign of life, once a session seems to be dead

-- Bury who has been silent for too long. Not at first sight: when the server itself has stood
-- still, everybody seems to be dead.
local function reap(at)
  local buried = 0
  local silent = redis.call('ZRANGEBYSCORE', base .. 'sessions', '-inf', at, 'LIMIT', 0, 10)
  for _, session in ipairs(silent) do
    if redis.call('SREM', base .. 'suspects', session) == 1 then
      bury(session)
      buried = buried + 1
    else
      redis.call('SADD', base .. 'suspects', session)
      redis.call('ZADD', base .. 'sessions', at + GRACE, session)
    end
  end
  for _, queue in ipairs(redis.call('ZRANGEBYSCORE', base .. 'unheard', '-inf', at, 'LIMIT', 0, 10)) do
    if redis.call('HLEN', base .. 'consumers:' .. queue) == 0 then
      remove(queue)
    else -- somebody is back
      redis.call('ZREM', base .. 'unheard', queue)
    end
  end
  return buried
end

local GONE = 'GONE the queue was deleted under its consumer, or the process stood still for so '
  .. 'long that others have taken over what it held'

local function is_known(queue, consumer)
  return redis.call('HEXISTS', base .. 'consumers:' .. queue, consumer) == 1
end

-- Whether a consumer of a queue with a single active one has to wait until that one is gone.
local function stands_by(queue, consumer)
  local key = base .. 'active:' .. queue
  local active = redis.call('GET', key)
  if active == consumer then
    return false
  elseif active and is_known(queue, active) then
    return true
  end
  redis.call('DEL', key)
  redis.call('SET', key, consumer)
  return false
end
