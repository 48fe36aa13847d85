-- What a consumer of lists holds, by number.

local held_key = base .. 'held:' .. ARGV[2]

local function is_held(number)
  return redis.call('HEXISTS', held_key, number) == 1
end

local function settle(numbers)
  return redis.call('HDEL', held_key, unpack(numbers))
end
