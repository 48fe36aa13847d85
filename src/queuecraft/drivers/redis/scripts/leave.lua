-- ARGV: session, queue, consumer. What it held goes back.

leave(ARGV[2], ARGV[3])
redis.call('HDEL', base .. 'session:' .. ARGV[1], ARGV[3])
return redis.status_reply('OK')
