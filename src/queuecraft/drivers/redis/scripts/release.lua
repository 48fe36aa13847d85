-- ARGV: queue, consumer, numbers in the order of the messages. To the head, in this order, and
-- not counted.

local queue, key = ARGV[1], base .. 'held:' .. ARGV[2]
begin()
for at = #ARGV, 3, -1 do
  local value = redis.call('HGET', key, ARGV[at])
  if value then
    redis.call('LPUSH', list(queue, ARGV[at]:sub(-1)), value)
    redis.call('HDEL', key, ARGV[at])
  end
end
return redis.status_reply('OK')
