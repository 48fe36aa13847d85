-- ARGV: queue, then levels and messages in turn, the last first: each goes to the head.

for at = 2, #ARGV, 2 do
  redis.call('LPUSH', list(ARGV[1], ARGV[at]), ARGV[at + 1])
end
return redis.status_reply('OK')
