-- ARGV: queue, then levels and messages in turn, the last first: each goes to the head. All of them,
-- or none: a key of another type is met before anything is written. What was in a queue that is
-- deleted has gone with it.

if not registered(ARGV[1]) then
  return redis.status_reply('OK')
end
for at = 2, #ARGV, 2 do
  redis.call('LLEN', list(ARGV[1], ARGV[at]))
end
begin() -- nobody else has them
for at = 2, #ARGV, 2 do
  redis.call('LPUSH', list(ARGV[1], ARGV[at]), ARGV[at + 1])
end
return redis.status_reply('OK')
