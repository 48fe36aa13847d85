-- ARGV: queue, consumer, how many, the number of the first, 'single' or '', 'keep' or ''.
-- Answers with the milliseconds until more is due, the level of each message (or '' if all are
-- usual), and the messages. The last digit of a number is the level.

local queue, consumer, limit, number = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
if not is_known(queue, consumer) then
  return redis.error_reply(GONE)
end
local wait = bring('l' .. queue, now())
if ARGV[5] == 'single' and stands_by(queue, consumer) then
  return { wait, '' }
end
local result, levels, held = { wait, '' }, {}, { base .. 'held:' .. consumer }
local function take(level)
  for _, value in ipairs(redis.call('LPOP', list(queue, level), limit) or {}) do
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
if #levels > 0 and ARGV[6] == 'keep' then
  redis.call('HSET', unpack(held))
end
return result
