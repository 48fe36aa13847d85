-- ARGV: session, milliseconds. Answers whether it is still one.

redis.call('SREM', base .. 'suspects', ARGV[1])
local expires = now() + tonumber(ARGV[2])
redis.call('ZADD', base .. 'sessions', 'XX', expires, ARGV[1])
return redis.call('ZSCORE', base .. 'sessions', ARGV[1]) and 1 or 0
