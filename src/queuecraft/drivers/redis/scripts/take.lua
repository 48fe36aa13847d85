-- ARGV: queue, consumer, how many, the number of the first, 'single' or '', 'keep' or ''.
-- Answers with the milliseconds until more is due, the level of each message (or '' if all are
-- usual), and the messages. The last digit of a number is the level.

local queue, consumer, limit, number = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
if not is_known(queue, consumer) then
  return redis.error_reply(GONE)
end
begin() -- a server that has become a replica says so, even if there is nothing to be taken
local wait = bring('l' .. queue, now())
if ARGV[5] == 'single' and stands_by(queue, consumer) then
  return { wait, '' }
end
local result, levels, held = { wait, '' }, {}, { base .. 'held:' .. consumer }
local taken = {}
local function take(level)
  local values = redis.call('LRANGE', list(queue, level), 0, limit - 1)
  taken[level] = #values
  for _, value in ipairs(values) do
    result[#result + 1] = value
    levels[#levels + 1] = level
    held[#held + 1] = string.format('%.0f', number) .. level
    held[#held + 1] = value
    number = number + 1
    limit = limit - 1
  end
end
if redis.call('EXISTS', unpack(urgent(queue))) > 0 then
  for level = 9, 1, -1 do
    if limit > 0 then
      take(tostring(level))
    end
  end
end
local usual = #levels == 0
if limit > 0 then
  take('0')
end
if not usual then
  result[2] = table.concat(levels)
end
-- Out of the lists last: a crash may cut the server's log in between.
if #levels > 0 and ARGV[6] == 'keep' then
  redis.call('HSET', unpack(held))
end
for level, count in pairs(taken) do
  if count > 0 then
    redis.call('LTRIM', list(queue, level), count, -1)
  end
end
return result
