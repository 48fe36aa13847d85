-- ARGV: none. A block of the server's log that a crash has left open swallows, at the next one, all
-- that was stored since and is not followed by the end of another. Two writes are such a block.

redis.call('SET', base .. 'sealed', 1)
redis.call('DEL', base .. 'sealed')
return redis.status_reply('OK')
