-- ARGV: queue, consumer, how many, 'single' or ''. Answers with the milliseconds until more is due,
-- '', and ids and messages in turn.

local queue, consumer, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
if not is_known(queue, consumer) then
  return redis.error_reply(GONE)
end
begin() -- as `take` does
local result = { bring('s' .. queue, now()), '' }
if ARGV[4] == 'single' and stands_by(queue, consumer) then
  return result
end
local key, back = stream(queue), base .. 'back:' .. queue
-- By name, not the first: what is played back after a crash may find another one there.
local function take_given_back()
  while limit > 0 do
    local found = redis.call('ZRANGE', back, 0, limit - 1)
    if not found[1] then
      break
    end
    for _, position in ipairs(found) do
      local id = id_at(position)
      local entry = redis.call('XCLAIM', key, GROUP, consumer, 0, id, 'FORCE')[1]
      if entry then -- else somebody has deleted it from the stream
        result[#result + 1] = id
        result[#result + 1] = told(queue, id, entry[2])
        limit = limit - 1
      end
    end
    redis.call('ZREM', back, unpack(found))
  end
end
take_given_back()
local function read()
  return redis.pcall('XREADGROUP', 'GROUP', GROUP, consumer, 'COUNT', limit, 'STREAMS', key, '>')
end
if limit > 0 then
  local streams = read()
  if streams and streams.err and streams.err:find('^-?NOGROUP') then
    redis.call('XGROUP', 'CREATE', key, GROUP, '0', 'MKSTREAM') -- somebody has deleted the stream
    streams = read()
  end
  if streams and streams.err then
    return streams
  end
  for _, entry in ipairs(streams and streams[1][2] or {}) do
    result[#result + 1] = entry[1]
    result[#result + 1] = value_of(entry[2])
    limit = limit - 1
  end
  if limit > 0 then -- nothing is unread: what is left was passed over
    take_up(queue, left(queue))
    take_given_back()
  end
end
return result
