-- What is nearly always asked for, before all else is even defined: one run of messages that are
-- due, on a route that is known and leads to one queue of lists. As `send` would do it.

if ARGV[1] == '' and ARGV[4] == '0' and #ARGV == 6 + ARGV[6] then
  local to, found = ARGV[2], nil
  if to:sub(1, 1) == 'x' then
    found = redis.call('HGET', KEYS[1] .. 'routes', to:sub(2))
    found = found and found:match('^l([^%z]+)$')
  else
    local as = redis.call('HGET', KEYS[1] .. 'queues', to:sub(2))
    found = as and as:sub(1, 1) ~= 's' and to:sub(2)
  end
  if found and #ARGV < 1000 then
    local level = ARGV[3] == '0' and 'queue:' or 'queue.' .. ARGV[3] .. ':'
    redis.call('RPUSH', KEYS[1] .. level .. found, unpack(ARGV, 7))
    return { '1' }
  end
end
