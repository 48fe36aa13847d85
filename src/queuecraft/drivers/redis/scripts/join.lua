-- ARGV: queue, session, consumer, milliseconds of the lease, prefetch. Answers with how the queue
-- is kept.

local queue, session, consumer = ARGV[1], ARGV[2], ARGV[3]
local as = registered(queue)
if not as then
  return redis.error_reply('NOQUEUE there is none')
end
begin() -- who consumes makes room
local at = now()
reap(at)
local key = base .. 'consumers:' .. queue
if as:sub(3, 3) == 'e' and redis.call('HLEN', key) > 0 then
  return redis.error_reply('TAKEN it has a consumer')
end
if as:sub(1, 1) == 's' then
  recover(queue)
end
redis.call('HSET', key, consumer, ARGV[5])
redis.call('HSET', base .. 'session:' .. session, consumer, queue)
redis.call('ZADD', base .. 'sessions', at + tonumber(ARGV[4]), session)
return as:sub(1, 1)
