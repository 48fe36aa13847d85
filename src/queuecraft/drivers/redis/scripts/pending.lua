-- What a consumer of a stream holds, by id. ARGV: queue, consumer, how many to retain.

local function is_held(id)
  local key = stream(ARGV[1])
  return is_known(ARGV[1], ARGV[2])
    and #redis.call('XPENDING', key, GROUP, id, id, 1, ARGV[2]) == 1
end

local function settle(ids)
  local key, retain = stream(ARGV[1]), tonumber(ARGV[3])
  local count = redis.call('XACK', key, GROUP, unpack(ids))
  redis.call('HDEL', base .. 'again:' .. ARGV[1], unpack(ids))
  if retain == 0 then
    redis.call('XDEL', key, unpack(ids))
    return count
  end
  local done = base .. 'done:' .. ARGV[1]
  redis.call('RPUSH', done, unpack(ids))
  local surplus = redis.call('LLEN', done) - retain
  if surplus > 0 then
    for _, id in ipairs(redis.call('LPOP', done, math.min(surplus, 1000))) do
      redis.call('XDEL', key, id)
    end
  end
  return count
end
