-- ARGV: queue. What is ready is forgotten; answers with how many, -1 if there is no such queue.
-- Of a stream not more than MOST at once, so that others get their turn.

local MOST = 20000
local queue = ARGV[1]
local as = registered(queue)
if not as then
  return -1
end
while bring(as:sub(1, 1) .. queue, now()) == 0 do
end
local gone = 0
if as:sub(1, 1) ~= 's' then
  local keys = urgent(queue)
  keys[#keys + 1] = list(queue, '0')
  for _, key in ipairs(keys) do
    gone = gone + redis.call('LLEN', key)
    redis.call('UNLINK', key)
  end
  return gone
end
local function forget(id)
  redis.call('XACK', stream(queue), GROUP, id)
  gone = gone + redis.call('XDEL', stream(queue), id)
end
for _, position in ipairs(redis.call('ZRANGE', base .. 'back:' .. queue, 0, -1)) do
  redis.call('HDEL', base .. 'again:' .. queue, id_at(position))
  forget(id_at(position))
end
redis.call('UNLINK', base .. 'back:' .. queue)
for _, entry in ipairs(unread(queue, MOST - math.min(gone, MOST - 1))) do
  forget(entry[1])
end
return gone
