-- ARGV: queue, how many. Answers with the next messages, or -1 if there is no such queue.

local queue, limit = ARGV[1], tonumber(ARGV[2])
local as = registered(queue)
if not as then
  return -1
end
bring(as:sub(1, 1) .. queue, now())
if as:sub(1, 1) == 's' then
  return next_entries(queue, limit)
end
local keys, result = urgent(queue), {}
keys[#keys + 1] = list(queue, '0')
for _, key in ipairs(keys) do
  if #result < limit then
    for _, value in ipairs(redis.call('LRANGE', key, 0, limit - #result - 1)) do
      result[#result + 1] = value
    end
  end
end
return result
