-- ARGV: queue, consumer, unused, ids.

if is_known(ARGV[1], ARGV[2]) then
  for at = 4, #ARGV do
    if is_held(ARGV[at]) then
      keep(ARGV[1], { ARGV[at] })
    end
  end
end
return redis.status_reply('OK')
