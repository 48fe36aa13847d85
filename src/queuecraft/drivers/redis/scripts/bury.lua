-- ARGV: sessions that are known to have ended.

for _, session in ipairs(ARGV) do
  bury(session)
end
return redis.status_reply('OK')
