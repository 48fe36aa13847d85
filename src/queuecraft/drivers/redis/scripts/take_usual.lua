-- What nearly always is, before all else is even defined: nothing urgent, nothing delayed. As
-- `take` would do it.

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
    local values = redis.call('LPOP', start .. 'queue:' .. name, ARGV[3])
    if not values then
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
    return result
  end
end
