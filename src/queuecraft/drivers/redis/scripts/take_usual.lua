-- What nearly always is, before all else is even defined: nothing urgent, nothing delayed. As
-- `take` would do it, and in the same order.

do
  local start, name = KEYS[1], ARGV[1]
  local unusual = { start .. 'delayed:' .. name, start .. 'events' }
  for level = 1, 9 do
    unusual[level + 2] = start .. 'queue.' .. level .. ':' .. name
  end
  if
    ARGV[5] == ''
    and redis.call('HEXISTS', start .. 'consumers:' .. name, ARGV[2]) == 1
    and redis.call('EXISTS', unpack(unusual)) == 0
  then
    redis.call('UNLINK', start .. 'nothing')
    local values = redis.call('LRANGE', start .. 'queue:' .. name, 0, ARGV[3] - 1)
    if #values == 0 then
      return { -1, '' }
    end
    local result, held = { -1, '' }, { start .. 'held:' .. ARGV[2] }
    for at = 1, #values do
      result[at + 2] = values[at]
      held[2 * at] = string.format('%.0f0', ARGV[4] + at - 1)
      held[2 * at + 1] = values[at]
    end
    if ARGV[6] == 'keep' then
      redis.call('HSET', unpack(held))
    end
    redis.call('LTRIM', start .. 'queue:' .. name, #values, -1)
    return result
  end
end
