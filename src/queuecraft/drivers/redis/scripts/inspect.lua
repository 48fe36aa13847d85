-- ARGV: queues. Answers for each that exists: its name, how many are ready, in flight, delayed,
-- dead and consuming (-1: there is no queue for dead letters), and the first message of each level.

local at = now()
reap(at)

local function held(queue, as)
  if as == 's' then
    return pending(queue) - redis.call('ZCARD', base .. 'back:' .. queue)
  end
  local count = 0
  each(base .. 'consumers:' .. queue, function(consumer)
    count = count + redis.call('HLEN', base .. 'held:' .. consumer)
  end)
  return count
end

local function ready(queue, as)
  if as == 's' then
    local all = redis.call('XLEN', stream(queue)) - redis.call('LLEN', base .. 'done:' .. queue)
    return math.max(0, all - held(queue, as))
  end
  local count = redis.call('LLEN', list(queue, '0'))
  for _, key in ipairs(urgent(queue)) do
    count = count + redis.call('LLEN', key)
  end
  return count
end

local result = {}
for _, queue in ipairs(ARGV) do
  local as = registered(queue)
  if as then
    as = as:sub(1, 1)
    bring(as .. queue, at)
    local told_of = {
      queue,
      ready(queue, as),
      held(queue, as),
      redis.call('ZCARD', base .. 'delayed:' .. queue),
      -1,
      redis.call('HLEN', base .. 'consumers:' .. queue),
    }
    local target = redis.call('HGET', base .. 'dead', queue)
    if target then
      local dead = cmsgpack.unpack(target)[2]
      local kept = registered(dead)
      if kept then
        told_of[5] = ready(dead, kept:sub(1, 1)) + held(dead, kept:sub(1, 1))
      end
    end
    local keys = as == 's' and {} or urgent(queue)
    if as == 's' then
      told_of[#told_of + 1] = next_entries(queue, 1)[1]
    else
      keys[#keys + 1] = list(queue, '0')
    end
    for _, key in ipairs(keys) do
      local head = redis.call('LINDEX', key, 0)
      if head then
        told_of[#told_of + 1] = head
      end
    end
    result[#result + 1] = told_of
  end
end
return result
